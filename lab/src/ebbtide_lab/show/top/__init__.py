# SPDX-License-Identifier: MIT OR Apache-2.0
"""`ebb top`: a running process on a terminal, second by second."""
