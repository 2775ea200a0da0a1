# SPDX-License-Identifier: MIT OR Apache-2.0
"""Heap profiles in pprof's format: read, and the names of what is in them."""
