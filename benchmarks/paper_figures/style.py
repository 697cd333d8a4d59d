"""Style of the figures: one colour and marker a method everywhere, distinct to the colour-blind.

Medians are lines, the band holds the middle 80 % of the repeats. One legend a figure, below its panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator
from PIL import Image

from benchmarks.paper_figures.cells import Table

# Okabe & Ito (2008): eight colours that remain different to people with any colour blindness.
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK = (
    "#000000", "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7",
)  # fmt: skip
GREY, INK, GRID = "#8a8f98", "#22272e", "#e3e6ea"
DPI, COLOURS = 110, 64
FLOOR = 1e-12  # an error of 0 has no place on a logarithmic axis

STYLE: Any = {
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.7,
    "lines.markersize": 4.5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Style of one method."""

    colour: str
    marker: str
    line: str = "-"
    band: bool = True


LOOKS: dict[str, Look] = {
    "gauss-cov": Look(colour=BLUE, marker="o"),
    "gauss-cov, shrunk": Look(colour=SKY, marker="o", line="--"),
    "gauss-cov, clipped": Look(colour=BLUE, marker="o", line=":", band=False),
    "analyze-gauss": Look(colour=BLACK, marker="v", line="--", band=False),
    "separate-cov": Look(colour=ORANGE, marker="s"),
    "separate-cov, clipped": Look(colour=ORANGE, marker="s", line=":", band=False),
    "adaptive-cov": Look(colour=GREEN, marker="D"),
    "em-cov": Look(colour=PINK, marker="^"),
    "zero": Look(colour=GREY, marker="", line="--", band=False),
    "dp-pca": Look(colour=GREEN, marker="D"),
    "refined-cov": Look(colour=ORANGE, marker="s"),
    "refined-pca": Look(colour=RED, marker="^"),
    "dp-pca-single-pass": Look(colour=ORANGE, marker="s"),
    "private-oja": Look(colour=RED, marker="^"),
    "private-oja-shuffled": Look(colour=PINK, marker="P"),
    "noisy-power": Look(colour=BLACK, marker="v"),
    "smooth-gaussian": Look(colour=ORANGE, marker="s"),
    "smooth-cauchy": Look(colour=RED, marker="^"),
    "propose-test-release": Look(colour=GREEN, marker="D"),
    "subspace-exact": Look(colour=BLUE, marker="o"),
    "subspace-exact-rank": Look(colour=SKY, marker="o", line="--"),
    "subspace-reference": Look(colour=BLACK, marker="v"),
    "subspace-approx": Look(colour=ORANGE, marker="s"),
    "subspace-approx-rank": Look(colour=PINK, marker="s", line="--"),
    "exact PCA": Look(colour=GREY, marker="", line="--", band=False),
    "lower bound": Look(colour=INK, marker="", line=":", band=False),
    "upper bound": Look(colour=INK, marker="", line="-.", band=False),
}
REFERENCE = Look(colour=GREY, marker="o", line="-")
MAIN = Look(colour=BLUE, marker="o")
TURNS = (BLUE, ORANGE, GREEN, RED, PINK, SKY)
MARKERS = ("o", "s", "D", "^", "v", "P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One set of axes: which series of which panel of the table, and its labels."""

    key: str
    title: str
    x: str
    y: str = ""
    series: tuple[str, ...]
    looks: dict[str, Look] | None = None
    x_scale: str = "log"
    y_scale: str = "log"
    y_limits: tuple[float, float] | None = None
    own_legend: bool = False

    def look(self, name: str) -> Look:
        """Style of a series here."""
        return (self.looks or LOOKS)[name]


def draw(
    table: Table,
    panels: Sequence[Panel],
    path: Path,
    *,
    columns: int,
    height: float = 3.1,
    width: float = 3.1,
    legend_columns: int = 6,
    share_y: bool = False,
    also: Callable[[Panel, Axes], None] | None = None,
) -> None:
    """Draw the panels of a table in rows of `columns`. `also` may add lines that were not measured.

    The picture has a palette of COLOURS, which makes it a third as large."""
    rows = -(-len(panels) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width * columns, height * rows + 0.35), dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, squeeze=False, sharey="row" if share_y else False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _panel(table, panel, axes)
            if also is not None:
                also(panel, axes)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _ticks(axes, panel)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_axis_off()
        if not all(panel.own_legend for panel in panels):
            _legend(figure, list(grid.flat), legend_columns)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.canvas.draw()
        picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")  # type: ignore[attr-defined]
        picture.quantize(COLOURS).save(path, optimize=True)


def _panel(table: Table, panel: Panel, axes: Axes) -> None:
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.set_xscale(panel.x_scale)
    axes.set_yscale(panel.y_scale)
    for name in panel.series:
        cells = table.line(panel.key, name)
        if not cells:
            continue
        look = panel.look(name)
        x = np.array([cell.x for cell in cells])
        low, middle, high = (
            np.maximum([getattr(cell, part) for cell in cells], FLOOR if panel.y_scale == "log" else 0.0)
            for part in ("low", "median", "high")
        )
        if panel.y_scale == "linear":
            middle = np.array([cell.mean for cell in cells])
        elif look.band:
            axes.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)
        axes.plot(x, middle, look.line, color=look.colour, marker=look.marker or None, label=name)
    if panel.own_legend:
        handles, names = axes.get_legend_handles_labels()
        axes.legend(handles, [name.split(" ")[-1].replace("=", " = ") for name in names], loc="best")
    if panel.y_limits is not None:
        axes.set_ylim(*panel.y_limits)


def _ticks(axes: Axes, panel: Panel) -> None:
    """Whole decades only where there are enough of them; otherwise the 2s and 5s as well."""
    for axis, scale, limits in (
        (axes.xaxis, panel.x_scale, axes.get_xlim()),
        (axes.yaxis, panel.y_scale, axes.get_ylim()),
    ):
        if scale != "log":
            continue
        few, one = limits[1] / limits[0] < 120, limits[1] / limits[0] < 3
        subs = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0) if one else (1.0, 2.0, 5.0) if few else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=12))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(_plain if few else _power)


def _plain(value: float, _: Any = None) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _power(value: float, _: Any = None) -> str:
    exponent = round(np.log10(value))
    return f"{value:g}" if -2 <= exponent <= 2 else f"$10^{{{exponent}}}$"


def _legend(figure: Figure, grid: list[Axes], columns: int) -> None:
    handles: dict[str, Any] = {}
    for axes in grid:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=min(columns, len(handles))
    )
