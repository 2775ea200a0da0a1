# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables and reports, for a terminal, a browser, a README."""
