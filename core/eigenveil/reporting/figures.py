"""The report's pictures: numbers in, SVG text out. No window, no file, no global plotting state."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray, IntArray

INK, SOFT, GRID, BLUE, PALE, RED = "#1c2733", "#5b6b7b", "#dfe5ec", "#1f5fa8", "#b9cde4", "#a8321f"
GROUPS = ("#1f5fa8", "#d1661c", "#3a8f5c", "#8b5fbf", "#b0902a", "#6b7785")  # told apart by the colour-blind
MOST_BARS = 20
MOST_COLUMNS = 48
MOST_WRITTEN = 14  # columns whose correlations fit into their cells as numbers
MOST_LABELS = 12
SHORTEST = 0.05  # arrow that gets a label, relative to the longest: a shorter one is a dot
MOST_VECTOR_POINTS = 4000  # beyond, the cloud is an image inside the SVG
WIDTH = 8.6  # inches; the page scales it
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
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Projection:
    """Public records in the component plane. Shape: points (n, 2 or more), groups n labels or none."""

    points: FloatArray
    groups: tuple[str, ...] = ()
    note: str = ""


def _draw(height: float, paint: Callable[[Figure], None]) -> str:
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # The font that measures the text need not have every glyph: the reader's browser will.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        paint(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _with_reader_fonts(text.getvalue())


def _with_reader_fonts(svg: str) -> str:
    """Where a style attribute names fonts, from the first quote up to the end of the declaration."""
    lines = svg[svg.index("<svg") :].split("\n")
    named = re.compile("'DejaVu Sans'[^;\"]*")
    return "\n".join(named.sub(FONTS, line) if "style=" in line else line for line in lines)


def label(name: str, most: int = 30) -> str:
    """`name`, short enough for a picture."""
    return name if len(name) <= most else name[: most - 1] + "…"


def scree(chosen: FloatArray, others: FloatArray, band: float, noise: float | None) -> str:
    """Explained variances with a band of two noise standard deviations.

    Shape: chosen (k,), falling; others (d - k,), the variances along the other directions. `noise` is
    the variance that noise alone would show, or None if unknown.
    """
    shown = np.concatenate([chosen, others])[: max(MOST_BARS, len(chosen))]

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        at = np.arange(1, len(shown) + 1)
        colours = [BLUE if i < len(chosen) else PALE for i in range(len(shown))]
        axes.bar(at, shown, width=0.62, color=colours, zorder=2)
        sure = at[: len(chosen)]
        axes.errorbar(
            sure, chosen, yerr=2 * band, fmt="none", ecolor=INK, elinewidth=1.1, capsize=3.5, zorder=3
        )
        if noise is not None:
            axes.axhline(noise, color=RED, lw=1.1, ls=(0, (5, 3)), zorder=4)
            axes.annotate(
                "below this line a direction may be noise",
                (1, noise), xycoords=("axes fraction", "data"), xytext=(-2, 4),
                textcoords="offset points", ha="right", color=RED, fontsize=9,
            )  # fmt: skip
        axes.set(xticks=at, xlim=(0.3, max(len(shown), 4) + 0.7), xlabel="component", ylabel="variance")
        axes.grid(axis="y", color=GRID, lw=0.8)

    return _draw(3.3, paint)


def loadings(components: FloatArray, columns: Sequence[str]) -> str:
    """Bars side by side for a few components, a heat map for many. Shape: components (k, d)."""
    order = list(range(len(columns)))
    if len(columns) > MOST_COLUMNS:
        strongest = np.argsort(-np.abs(components).max(axis=0), kind="stable")[:MOST_COLUMNS]
        order = sorted(strongest.tolist())
    names = [label(columns[i]) for i in order]
    values = components[:, order]
    height = 0.9 + 0.205 * len(order)
    if len(components) <= 4:
        return _draw(height, lambda figure: _bars(figure, values, names))
    return _draw(height + 0.4, lambda figure: _heat_map(figure, values, names))


def _bars(figure: Figure, values: FloatArray, names: list[str]) -> None:
    all_axes = figure.subplots(1, len(values), sharey=True, squeeze=False)[0]
    limit = 1.08 * float(np.abs(values).max())
    at = np.arange(len(names))
    for i, (axes, row) in enumerate(zip(all_axes, values, strict=True)):
        axes.barh(at, row, height=0.66, color=np.where(row < 0, GROUPS[1], GROUPS[0]), zorder=2)
        axes.axvline(0, color=SOFT, lw=0.8, zorder=3)
        axes.set_title(f"component {i + 1}", fontsize=10, color=INK)
        axes.set_xlim(-limit, limit)
        axes.grid(axis="x", color=GRID, lw=0.8)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
    all_axes[0].set_yticks(at, names, fontsize=8.5)
    all_axes[0].set_ylim(len(names) - 0.4, -0.6)


def _heat_map(figure: Figure, values: FloatArray, names: list[str]) -> None:
    axes = figure.add_subplot()
    limit = float(np.abs(values).max())
    picture = axes.pcolormesh(values.T, cmap="RdBu", vmin=-limit, vmax=limit, edgecolors="white", lw=0.5)
    axes.set_yticks(np.arange(len(names)) + 0.5, names, fontsize=8.5)
    axes.set_xticks(np.arange(len(values)) + 0.5, [str(i + 1) for i in range(len(values))])
    axes.invert_yaxis()
    axes.set_xlabel("component")
    axes.tick_params(length=0)
    figure.colorbar(picture, ax=axes, label="loading", fraction=0.04, pad=0.02)


def correlations(values: FloatArray, is_noise: NDArray[np.bool_], columns: Sequence[str]) -> str:
    """A heat map, grey where noise alone could show as much. Shape: both (d, d)."""
    names = [label(name, 18) for name in columns]

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        below = np.tri(len(names), k=-1, dtype=bool)
        shown = np.ma.masked_array(values, mask=is_noise | ~below)
        grey = np.ma.masked_array(np.ones_like(values), mask=~(is_noise & below))
        axes.pcolormesh(grey, cmap="Greys", vmin=0, vmax=6, edgecolors="white", lw=0.8)
        picture = axes.pcolormesh(shown, cmap="RdBu", vmin=-1, vmax=1, edgecolors="white", lw=0.8)
        at = np.arange(len(names)) + 0.5
        axes.set_yticks(at, names, fontsize=8.5)
        axes.set_xticks(at, names, fontsize=8.5, rotation=55, ha="right", rotation_mode="anchor")
        axes.invert_yaxis()
        axes.set(xlim=(0, len(names) - 1), ylim=(len(names), 1))
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        if len(names) <= MOST_WRITTEN:
            _written(axes, values, is_noise)
        figure.colorbar(picture, ax=axes, label="correlation", fraction=0.04, pad=0.02)

    return _draw(min(8.2, 1.8 + 0.42 * len(names)), paint)


def _written(axes: Axes, values: FloatArray, is_noise: NDArray[np.bool_]) -> None:
    for i, j in zip(*np.tril_indices(len(values), -1), strict=True):
        strong = abs(values[i, j]) > 0.6 and not is_noise[i, j]
        colour = "white" if strong else SOFT if is_noise[i, j] else INK
        text = f"{values[i, j]:.2f}".replace("-", "\N{MINUS SIGN}")
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8, color=colour)


def biplot(arrows: FloatArray, columns: Sequence[str], projection: Projection | None) -> str:
    """Columns as arrows in the plane of the first two components, over public records if there are any.

    Shape: arrows (d, 2).
    """
    cloud = projection is not None and len(projection.points) > 0
    points = projection.points[:, :2] if projection is not None and cloud else np.zeros((1, 2))
    reach = 0.85 * float(np.quantile(np.abs(points), 0.995)) or 1.0
    longest = float(np.linalg.norm(arrows, axis=1).max()) or 1.0
    tips = arrows * (reach / longest)
    lengths = np.linalg.norm(tips, axis=1)
    named = np.argsort(-lengths, kind="stable")[:MOST_LABELS]
    labels = _place(tips, named[lengths[named] >= SHORTEST * reach], reach)
    # A tip outside of the frame would take its arrow with it.
    wide = [*points[:, 0], *tips[:, 0], *(np.sign(x) * 2.0 * reach for x, _ in labels.values())]
    low, high = float(min(wide)), float(max(wide))
    heights = [*tips[:, 1], *(y for _, y in labels.values()), 0.5 * reach]
    tall = 1.1 * max(float(np.quantile(np.abs(points[:, 1]), 0.998)), float(np.abs(heights).max()))

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        if projection is not None and cloud:
            _cloud(axes, projection)
        else:
            axes.set(xticks=[], yticks=[])  # without records the arrows have no scale of their own
        _arrows(axes, tips, columns, labels)
        axes.axhline(0, color=GRID, lw=0.8, zorder=0)
        axes.axvline(0, color=GRID, lw=0.8, zorder=0)
        axes.set(xlim=(low - 0.15 * reach, high + 0.15 * reach), ylim=(-tall, tall), aspect="equal")
        axes.set(xlabel="component 1", ylabel="component 2")
        axes.spines[:].set_visible(False)

    return _draw(min(7.5, 0.6 + 0.92 * WIDTH * 2 * tall / (high - low + 0.3 * reach)), paint)


def _cloud(axes: Axes, projection: Projection) -> None:
    groups = projection.groups or ("",) * len(projection.points)
    for i, group in enumerate(dict.fromkeys(groups)):
        inside = projection.points[[g == group for g in groups]]
        axes.scatter(
            inside[:, 0], inside[:, 1], s=11, lw=0, alpha=0.5, color=GROUPS[i % len(GROUPS)],
            label=label(group) if group else None, rasterized=len(groups) > MOST_VECTOR_POINTS,
        )  # fmt: skip
    if projection.groups:
        axes.legend(loc="upper left", markerscale=1.8, handletextpad=0.2)


def _arrows(
    axes: Axes, tips: FloatArray, columns: Sequence[str], labels: dict[int, tuple[float, float]]
) -> None:
    for i, tip in enumerate(tips):
        strong = i in labels
        axes.annotate(
            "", xy=(tip[0], tip[1]), xytext=(0, 0),
            arrowprops={"arrowstyle": "-|>" if strong else "-", "color": INK if strong else SOFT,
                        "lw": 1.1 if strong else 0.5, "alpha": 0.9 if strong else 0.4,
                        "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
    for i, (x, y) in labels.items():
        axes.annotate(
            label(columns[i]), xy=(tips[i, 0], tips[i, 1]), xytext=(x, y),
            ha="left" if x > 0 else "right", va="center", fontsize=9, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": SOFT, "lw": 0.5, "alpha": 0.7, "shrinkB": 1},
        )  # fmt: skip


def _place(tips: FloatArray, named: IntArray, reach: float) -> dict[int, tuple[float, float]]:
    """Where each name goes: a column on either side, in the order of the tips, never on top of another."""
    places: dict[int, tuple[float, float]] = {}
    for side in (-1, 1):
        mine = [int(i) for i in named if (1 if tips[i, 0] >= 0 else -1) == side]
        mine.sort(key=lambda i: float(tips[i, 1]))
        heights = [float(tips[i, 1]) for i in mine]
        for j in range(1, len(mine)):
            heights[j] = max(heights[j], heights[j - 1] + 0.135 * reach)
        shift = sum(heights) - sum(float(tips[i, 1]) for i in mine)
        places |= {
            i: (side * 1.25 * reach, height - shift / len(mine))
            for i, height in zip(mine, heights, strict=True)
        }
    return places
