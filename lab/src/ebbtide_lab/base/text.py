# SPDX-License-Identifier: MIT OR Apache-2.0
"""Text of others."""


def shown(text: str) -> str:
    """What a process says goes to a terminal, which is not to obey it."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)
