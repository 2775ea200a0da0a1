# SPDX-License-Identifier: MIT OR Apache-2.0
"""The arms: which shared object to preload for each, found or built."""
