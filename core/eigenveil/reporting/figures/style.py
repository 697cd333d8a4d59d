"""How pictures look, and a picture as SVG text. No window, no file, no global plotting state."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from eigenveil.errors import Code, RequestError

INK, SOFT, GRID, BLUE, PALE, RED = "#1c2733", "#5b6b7b", "#dfe5ec", "#1f5fa8", "#b9cde4", "#a8321f"
GROUPS = ("#1f5fa8", "#d1661c", "#3a8f5c", "#8b5fbf", "#b0902a", "#6b7785")  # told apart by the colour-blind
HATCH = "////"  # on what noise alone may have made: seen without colours, too
MOST_COLUMNS = 48
NARROW = 5.0  # inches: below, a picture has fewer and shorter words, of the same size
FONTS = "system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,'DejaVu Sans',sans-serif"

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "eigenveil",
    "text.parse_math": False,  # a column may be called "cost ($)"
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.frameon": False,
    "hatch.linewidth": 0.8,
}


def svg(width: float, height: float, paint: Callable[[Axes], None]) -> str:
    """What `paint` draws, in inches."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # The font that measures the text need not have every glyph: the reader's browser will.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        paint(figure.add_subplot())
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _with_reader_fonts(text.getvalue())


def _with_reader_fonts(text: str) -> str:
    """Where a style attribute names fonts, from the first quote up to the end of the declaration."""
    lines = text[text.index("<svg") :].split("\n")
    named = re.compile("'DejaVu Sans'[^;\"]*")
    return "\n".join(named.sub(FONTS, line) if "style=" in line else line for line in lines)


def label(name: str, most: int = 30) -> str:
    """`name`, short enough for a picture."""
    return name if len(name) <= most else name[: most - 1] + "…"


def narrow(axes: Axes) -> bool:
    """Whether there is room for few words only."""
    return bool(whole(axes).get_size_inches()[0] < NARROW)


def whole(axes: Axes) -> Figure:
    """The figure that axes stand in, whatever is between.

    Raises:
        RequestError: code `bad-argument`: they stand in none.
    """
    found = axes.get_figure(root=True)
    if found is None:
        raise RequestError(Code.BAD_ARGUMENT, "these axes belong to no figure: they were removed from theirs")
    return found


def minus(text: str) -> str:
    """With a true minus sign."""
    return text.replace("-", "\N{MINUS SIGN}")
