# SPDX-License-Identifier: MIT OR Apache-2.0
"""Numbers as options."""

import math

import click


class FloatRange(click.FloatRange):
    """Of click's, which lets nan pass."""

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is no number.", param, ctx)
        return number
