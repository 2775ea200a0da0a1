# SPDX-License-Identifier: MIT OR Apache-2.0
"""The report on a folder of results: one HTML file and the same as Markdown."""
