"""Columns as arrows in the plane of the first two components, over public records if there are any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.reporting.figures.style import GRID, GROUPS, INK, SOFT, label, narrow, whole
from eigenveil.reporting.figures.subject import Subject

SHORTEST = 0.05  # arrow that gets a label, relative to the longest: a shorter one is a dot
MOST_VECTOR_POINTS = 4000  # beyond, the cloud is an image inside the SVG


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Projection:
    """Public records in the component plane. Shape: points (n, 2 or more), groups n labels or none."""

    points: FloatArray
    groups: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many columns are named, in how many letters, how far apart and how far out, in parts of the cloud's
    reach."""

    labels: int
    letters: int
    apart: float
    out: float


WIDE, SMALL = (
    Room(labels=12, letters=30, apart=0.135, out=2.0),
    Room(labels=8, letters=13, apart=0.24, out=2.5),
)


def arrows_of(subject: Subject) -> FloatArray:
    """Loadings times standard deviations. Shape: (d, 2).

    Raises:
        RequestError: code `bad-argument`: only one component was released.
    """
    if subject.k < 2:
        raise RequestError(Code.BAD_ARGUMENT, "a biplot needs two components, and one was released")
    return np.asarray(subject.components[:2].T * np.sqrt(np.maximum(subject.variances[:2], 0.0)))


def biplot(axes: Axes, arrows: FloatArray, columns: Sequence[str], projection: Projection | None) -> None:
    """Shape: arrows (d, 2); without records they have no scale of their own."""
    room = SMALL if narrow(axes) else WIDE
    cloud = projection is not None and len(projection.points) > 0
    points = projection.points[:, :2] if projection is not None and cloud else np.zeros((1, 2))
    reach = 0.85 * float(np.quantile(np.abs(points), 0.995)) or 1.0
    longest = float(np.linalg.norm(arrows, axis=1).max()) or 1.0
    tips = arrows * (reach / longest)
    lengths = np.linalg.norm(tips, axis=1)
    named = np.argsort(-lengths, kind="stable")[: room.labels]
    labels = _place(tips, named[lengths[named] >= SHORTEST * reach], reach, room)
    if projection is not None and cloud:
        _cloud(axes, projection)
    else:
        axes.set(xticks=[], yticks=[])
    _arrows(axes, tips, [label(name, room.letters) for name in columns], labels)
    axes.axhline(0, color=GRID, lw=0.8, zorder=0)
    axes.axvline(0, color=GRID, lw=0.8, zorder=0)
    _frame(axes, points, tips, labels, reach, room)
    axes.set(xlabel="component 1", ylabel="component 2")
    axes.spines[:].set_visible(False)


def _frame(
    axes: Axes,
    points: FloatArray,
    tips: FloatArray,
    labels: dict[int, tuple[float, float]],
    reach: float,
    room: Room,
) -> None:
    """Wide and high enough for all: a tip outside would take its arrow with it."""
    wide = [*points[:, 0], *tips[:, 0], *(np.sign(x) * room.out * reach for x, _ in labels.values())]
    heights = [*tips[:, 1], *(y for _, y in labels.values()), 0.5 * reach]
    tall = 1.1 * max(float(np.quantile(np.abs(points[:, 1]), 0.998)), float(np.abs(heights).max()))
    low, high = min(wide) - 0.15 * reach, max(wide) + 0.15 * reach
    across, down = whole(axes).get_size_inches()
    more = max(0.0, 2 * tall * across / down - (high - low)) / 2  # one scale, and no room left empty
    tall = max(tall, (high - low) * down / across / 2)
    axes.set(xlim=(low - more, high + more), ylim=(-tall, tall), aspect="equal")


def _cloud(axes: Axes, projection: Projection) -> None:
    groups = projection.groups or ("",) * len(projection.points)
    for i, group in enumerate(dict.fromkeys(groups)):
        inside = projection.points[[g == group for g in groups]]
        axes.scatter(
            inside[:, 0], inside[:, 1], s=11, lw=0, alpha=0.5, color=GROUPS[i % len(GROUPS)],
            marker="os^Dv"[i % 5], label=label(group) if group else None,
            rasterized=len(groups) > MOST_VECTOR_POINTS,
        )  # fmt: skip
    if projection.groups:
        axes.legend(loc="upper left", markerscale=1.8, handletextpad=0.2)


def _arrows(
    axes: Axes, tips: FloatArray, names: Sequence[str], labels: dict[int, tuple[float, float]]
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
        named = axes.annotate(
            names[i], xy=(tips[i, 0], tips[i, 1]), xytext=(x, y),
            ha="left" if x > 0 else "right", va="center", fontsize=9, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": SOFT, "lw": 0.5, "alpha": 0.7, "shrinkB": 1},
        )  # fmt: skip
        named.set_in_layout(False)  # the frame has room for it


def _place(tips: FloatArray, named: IntArray, reach: float, room: Room) -> dict[int, tuple[float, float]]:
    """Where each name goes: a column on either side, in the order of the tips, never on top of another."""
    places: dict[int, tuple[float, float]] = {}
    for side in (-1, 1):
        mine = [int(i) for i in named if (1 if tips[i, 0] >= 0 else -1) == side]
        mine.sort(key=lambda i: float(tips[i, 1]))
        heights = [float(tips[i, 1]) for i in mine]
        for j in range(1, len(mine)):
            heights[j] = max(heights[j], heights[j - 1] + room.apart * reach)
        shift = sum(heights) - sum(float(tips[i, 1]) for i in mine)
        places |= {
            i: (side * 1.25 * reach, height - shift / len(mine))
            for i, height in zip(mine, heights, strict=True)
        }
    return places
