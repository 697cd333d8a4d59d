"""Option type of `--epsilon 0.25:8`: a range of epsilons. `--plot FILE`: pictures of plans, simulations and
comparisons, as PNG, SVG or PDF."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenveil.errors import Code, RequestError, install_command
from eigenveil_common.command import FILE
from eigenveil_common.files import check_output, write_durably

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


# Without a date, so that equal numbers give equal files.
SAVE_OPTIONS: dict[str, dict[str, Any]] = {
    ".png": {"metadata": {"Software": None}, "dpi": 160},
    ".svg": {"metadata": {"Date": None, "Creator": None}},
    ".pdf": {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
}

plot_option = click.option(
    "--plot", type=FILE, metavar="FILE", help="Also draw the result: a file that ends in .png, .svg or .pdf."
)


def check_picture(path: Path | None, *inputs: Path) -> None:
    """Check that a picture can be drawn and written to `path`, before a long computation."""
    if path is None:
        return
    if path.suffix.lower() not in SAVE_OPTIONS:
        endings = ", ".join(SAVE_OPTIONS)
        raise RequestError(Code.BAD_ARGUMENT, f"--plot {path}: the name must end in one of {endings}")
    if find_spec("matplotlib") is None:
        raise RequestError(
            Code.BAD_ARGUMENT, f"--plot needs matplotlib: {install_command('eigenveil[analyst]')}"
        )
    check_output(path, *inputs)


def write_figure(path: Path, size: tuple[float, float], paint: Callable[[Figure], None]) -> None:
    """Write a figure of `size` inches that `paint` draws."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from eigenveil.reporting.figures.figure import STYLE

    ending = path.suffix.lower()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        paint(figure)
        data = io.BytesIO()
        figure.savefig(data, format=ending[1:], **SAVE_OPTIONS[ending])
    write_durably(path, data.getvalue())
