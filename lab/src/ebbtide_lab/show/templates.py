# SPDX-License-Identifier: MIT OR Apache-2.0
"""The templates of pages: what they miss is an error, and blocks leave no blank lines."""

from collections.abc import Callable

from jinja2 import Environment, PackageLoader, StrictUndefined

TEMPLATES = PackageLoader("ebbtide_lab.show.report", "templates")


def environment(
    *, autoescape: bool, finalize: Callable[[object], object] | None = None
) -> Environment:
    return Environment(
        loader=TEMPLATES,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=autoescape,
        finalize=finalize,
    )
