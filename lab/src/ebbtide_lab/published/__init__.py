# SPDX-License-Identifier: MIT OR Apache-2.0
"""What five earlier systems published: their tables, their figures, and what those mean."""
