# SPDX-License-Identifier: MIT OR Apache-2.0
"""What every room of the lab needs: errors that a user reads, and where things are."""
