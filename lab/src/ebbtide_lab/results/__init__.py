# SPDX-License-Identifier: MIT OR Apache-2.0
"""What was measured: rows of samples, and the folder that keeps them."""
