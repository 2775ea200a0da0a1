# SPDX-License-Identifier: MIT OR Apache-2.0
"""The templates of pages: what they miss is an error, and blocks leave no blank lines."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

TEMPLATES = PackageLoader("ebbtide_lab.show.report", "templates")


def environment(**options: Any) -> Environment:
    """`autoescape` is the caller's to say."""
    return Environment(
        loader=TEMPLATES,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )
