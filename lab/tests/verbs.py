# SPDX-License-Identifier: MIT OR Apache-2.0
"""What tests of the verbs share."""

from click.testing import Result


def fault_of(done: Result) -> str:
    """The one line of a verb that could not do it."""
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, SystemExit)
    assert done.output.startswith("Error: ")
    assert done.output.count("\n") == 1
    return done.output
