# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command ebb: one module for each verb, joined in main.py."""
