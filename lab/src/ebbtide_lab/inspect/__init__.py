# SPDX-License-Identifier: MIT OR Apache-2.0
"""A running process with Ebbtide, read from outside: who holds memory, who stalls whom."""
