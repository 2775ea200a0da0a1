# SPDX-License-Identifier: MIT OR Apache-2.0
"""The five seed documents: their tables, their figures, and what those mean."""
