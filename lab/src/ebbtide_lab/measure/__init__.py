# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs arms interleaved, checks each run, and writes it down."""
