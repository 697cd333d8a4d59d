"""`--epsilon 0.25:8`: epsilons from one to another, as a type of option."""

from __future__ import annotations

import math
from typing import Any

import click

FEWEST, MOST, USUAL = 2, 50, 6


class Epsilons(click.ParamType[tuple[float, ...]]):
    """LOW:HIGH or LOW:HIGH:POINTS, evenly apart on a logarithmic scale; or one number."""

    name = "LOW:HIGH[:POINTS]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """The epsilons that a text says."""
        parts = str(value).split(":")
        try:
            ends = [float(part) for part in parts[:2]]
            points = int(parts[2]) if len(parts) == 3 else USUAL
        except ValueError:
            ends, points = [], 0
        rising = bool(ends) and ends[0] > 0 and ends[-1] < math.inf and (len(ends) == 1 or ends[0] < ends[1])
        if not rising or len(parts) > 3 or not FEWEST <= points <= MOST:
            self.fail(
                f"{value!r}: write LOW:HIGH, such as 0.25:8, or LOW:HIGH:POINTS with {FEWEST} to {MOST} "
                "points",
                param,
                ctx,
            )
        if len(ends) == 1:
            return (ends[0],)
        steps = [(ends[1] / ends[0]) ** (i / (points - 1)) for i in range(points - 1)]
        return (*(ends[0] * step for step in steps), ends[1])


epsilon_option = click.option(
    "--epsilon", "epsilons", type=Epsilons(), help="Predict it for epsilons from LOW to HIGH as well."
)
