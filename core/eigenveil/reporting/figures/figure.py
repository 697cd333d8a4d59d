"""Data of a release for its figures, in the units of its study. Style of the figures, and rendering to SVG
without a window, a file or global plotting state."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenvalues
from eigenveil.protocol.plan import planned_study
from eigenveil.reporting.document import HasRelease
from eigenveil.reporting.result import Result
from eigenveil.study.scaling import SCALING_TEXTS, Scaling
from eigenveil.study.study import Study

FEW = 6  # most directions shown with even shares of a variance of which only the sum is known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReleaseFigureData:
    """Result of a release, with its study and the name of its algorithm. Raises RequestError: code
    `bad-argument`: the study released no components."""

    result: Result
    study: Study
    algorithm: str

    def __post_init__(self) -> None:
        if not self.k:
            why = self.result.declined or "no components"
            raise RequestError(Code.BAD_ARGUMENT, f"there is nothing to draw: {why}")

    @classmethod
    def of(cls, release: HasRelease) -> Self:
        """Return the data of a release or a simulation. Raises RequestError: as the constructor."""
        plan = release.document["plan"]
        return cls(result=release.result, study=planned_study(plan), algorithm=plan["algorithm"])

    @property
    def k(self) -> int:
        """Number of released components."""
        return len(self.result.components)

    @property
    def units(self) -> str:
        """Units of a variance, for a label."""
        if axis := SCALING_TEXTS[Scaling(self.study.scaling)].axis:
            return axis
        units = {column.unit for column in self.study.columns}
        return f"{units.pop()}²" if len(units) == 1 and units != {""} else "squared units of the columns"

    @property
    def other_variance(self) -> float:
        """Mean variance of the directions outside the components."""
        over = self.result.total_variance - float(self.result.explained_variance.sum())
        return max(0.0, over) / max(len(self.result.columns) - self.k, 1)

    @property
    def other_variances(self) -> FloatArray:
        """Variances of the directions outside the components: known, or a few even shares of their sum."""
        if self.result.covariance is not None:
            return eigenvalues(self.result.covariance)[self.k :]
        return np.full(min(len(self.result.columns) - self.k, FEW), self.other_variance)


INK, SOFT, GRID, BLUE, PALE, RED = "#1c2733", "#5b6b7b", "#dfe5ec", "#1f5fa8", "#b9cde4", "#a8321f"
GROUPS = ("#1f5fa8", "#d1661c", "#3a8f5c", "#8b5fbf", "#b0902a", "#6b7785")  # distinct for the colour-blind
HATCH = "////"  # marks directions that may be noise, also without colours
MOST_COLUMNS = 48
ALONE = 0.775  # share of a figure's width that single axes have
NARROW = 5.0  # inches: a narrower figure has fewer and shorter labels of the same size
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


def render_svg(width: float, height: float, paint: Callable[[Axes], None]) -> str:
    """Return the drawing of `paint` as SVG text; width and height in inches."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # The font that measures the text may lack a glyph that the reader's browser has.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        paint(figure.add_subplot())
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _with_reader_fonts(text.getvalue())


def image_address(width: float, height: float, paint: Callable[[Axes], None]) -> str:
    """Return the drawing of `paint` as the address of an image; width and height in inches."""
    return f"data:image/svg+xml;base64,{base64.b64encode(render_svg(width, height, paint).encode()).decode()}"


def _with_reader_fonts(text: str) -> str:
    """Replace the font list in style attributes by fonts of the reader's system."""
    lines = text[text.index("<svg") :].split("\n")
    named = re.compile("'DejaVu Sans'[^;\"]*")
    return "\n".join(named.sub(FONTS, line) if "style=" in line else line for line in lines)


def short_label(name: str, most: int = 30) -> str:
    """Return `name`, cut to at most `most` characters."""
    return name if len(name) <= most else name[: most - 1] + "…"


def is_narrow(axes: Axes) -> bool:
    """Return True if the axes are as narrow as those of a figure of NARROW inches."""
    share = axes.get_position(original=True).width
    return bool(figure_of(axes).get_size_inches()[0] * share < NARROW * ALONE)


def figure_of(axes: Axes) -> Figure:
    """Return the root figure of axes. Raises RequestError: code `bad-argument`: the axes are in no figure."""
    found = axes.get_figure(root=True)
    if found is None:
        raise RequestError(Code.BAD_ARGUMENT, "these axes were removed from their figure; pass other axes")
    return found


def with_minus_sign(text: str) -> str:
    """Return text with a true minus sign."""
    return text.replace("-", "\N{MINUS SIGN}")
