# SPDX-License-Identifier: MIT OR Apache-2.0
"""The machine that figures depend on: its card, and what is wrong with it."""
