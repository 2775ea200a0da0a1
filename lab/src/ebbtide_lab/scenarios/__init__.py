# SPDX-License-Identifier: MIT OR Apache-2.0
"""What can be measured, as data: sets/*.toml, read and checked."""
