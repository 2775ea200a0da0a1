# SPDX-License-Identifier: MIT OR Apache-2.0
"""The lab of Ebbtide: runs programs under allocators, and measures them."""

VERSION = "0.1.0"
SCHEMA = 2
