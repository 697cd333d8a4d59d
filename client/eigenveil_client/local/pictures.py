"""`--plot FILE`: pictures of plans, simulations and comparisons, as PNG, SVG or PDF."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenveil.errors import Code, RequestError
from eigenveil_common.command import FILE
from eigenveil_common.files import check_output, write_durably

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Without the time of day, so that the same numbers give the same file.
ENDINGS: dict[str, dict[str, Any]] = {
    ".png": {"metadata": {"Software": None}, "dpi": 160},
    ".svg": {"metadata": {"Date": None, "Creator": None}},
    ".pdf": {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
}

plot_option = click.option(
    "--plot", type=FILE, metavar="FILE", help="Draw it as well: a file that ends in .png, .svg or .pdf."
)


def check_picture(path: Path | None, *inputs: Path) -> None:
    """See that a picture can be drawn and written there, before anything that takes long.

    Raises:
        InternalError: code `storage`, it cannot be written.
        RequestError: another ending, it would replace one of `inputs`, or matplotlib is not installed.
    """
    if path is None:
        return
    if path.suffix.lower() not in ENDINGS:
        raise RequestError(
            Code.BAD_ARGUMENT,
            f"--plot {path}: let the name end in {', '.join(ENDINGS)}, which says the format",
        )
    if find_spec("matplotlib") is None:
        raise RequestError(Code.BAD_ARGUMENT, '--plot needs matplotlib: pip install "eigenveil[analyst]"')
    check_output(path, *inputs)


def draw(path: Path, size: tuple[float, float], paint: Callable[[Figure], None]) -> None:
    """Write what `paint` draws on a figure of that size in inches.

    Raises:
        InternalError: code `storage`, it cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from eigenveil.reporting.figures.style import STYLE

    ending = path.suffix.lower()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        paint(figure)
        data = io.BytesIO()
        figure.savefig(data, format=ending[1:], **ENDINGS[ending])
    write_durably(path, data.getvalue())
