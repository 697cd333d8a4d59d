"""Option type of `--epsilon 0.25:8`: a range of epsilons."""

from __future__ import annotations

import math
from typing import Any

import click

MIN_POINTS, MAX_POINTS, DEFAULT_POINTS = 2, 50, 6


class Epsilons(click.ParamType[tuple[float, ...]]):
    """LOW:HIGH or LOW:HIGH:POINTS, evenly spaced on a logarithmic scale; or one number."""

    name = "LOW:HIGH[:POINTS]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Return the epsilons of a text."""
        parts = str(value).split(":")
        try:
            ends = [float(part) for part in parts[:2]]
            points = int(parts[2]) if len(parts) == 3 else DEFAULT_POINTS
        except ValueError:
            ends, points = [], 0
        rising = bool(ends) and ends[0] > 0 and ends[-1] < math.inf and sorted({*ends}) == ends
        if not rising or len(parts) > 3 or not MIN_POINTS <= points <= MAX_POINTS:
            many = f"LOW:HIGH:POINTS with {MIN_POINTS} to {MAX_POINTS} points"
            self.fail(f"{value!r}: write LOW:HIGH, such as 0.25:8, or {many}", param, ctx)
        if len(ends) == 1:
            return (ends[0],)
        steps = [(ends[1] / ends[0]) ** (i / (points - 1)) for i in range(points - 1)]
        return (*(ends[0] * step for step in steps), ends[1])


epsilon_option = click.option(
    "--epsilon", "epsilons", type=Epsilons(), help="Also predict for epsilons from LOW to HIGH."
)
