# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the samples say: medians, intervals, ratios, bars."""
