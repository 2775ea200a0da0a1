# SPDX-License-Identifier: MIT OR Apache-2.0
"""The one error that a user sees as a line rather than as a trace."""


class LabError(Exception):
    """Something that the user can put right; the message says what."""


class RunError(LabError):
    """One run failed: a crash, a check that does not hold, the wrong allocator."""


class NotRunError(LabError):
    """No failure: the program says that it cannot do this at all, and why."""
