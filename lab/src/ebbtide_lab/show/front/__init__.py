# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a stranger meets first: the README's charts and figures, and the page of all sessions."""
