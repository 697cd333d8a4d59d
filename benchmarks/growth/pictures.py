"""One picture for each thing that grows: what was measured as marks, and the fitted law beside it, dashed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.growth.laws import Laws, fitted
from benchmarks.growth.parts import FEW, WIDTHS
from benchmarks.growth.points import Point, Setting
from benchmarks.paper_figures.cells import Cell, Table
from benchmarks.paper_figures.style import BLACK, GREY, MARKERS, TURNS, Look, Panel
from benchmarks.paper_figures.style import draw as draw_panels
from eigenveil.queries.limits import triangle

LAW = {"linestyle": "--", "linewidth": 1.0, "alpha": 0.8, "color": "#22272e"}
LOOKS = tuple(
    Look(colour=colour, marker=marker, band=False)
    for colour, marker in zip((*TURNS, BLACK, GREY, "#7f5a2f"), (*MARKERS, "X", "*", "h"), strict=True)
)
CPU, CLOCK, BYTES = "processor seconds", "seconds by the clock", "bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one step on one panel: `x` of each, or None if it is not shown; which quantity."""

    name: str
    step: str
    x: Callable[[Setting], float | None]
    quantity: str = "processor_seconds"
    turn: int = 0

    def shown(self, points: Sequence[Point]) -> list[tuple[float, Point]]:
        """By rising x."""
        found = []
        for point in points:
            if point.setting.what == self.step and point.measured.get(self.quantity, 0.0) > 0:
                x = self.x(point.setting)
                if x is not None:
                    found.append((x, point))
        return sorted(found, key=lambda pair: pair[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One set of axes."""

    title: str
    x: str
    y: str = CPU
    series: tuple[Series, ...] = field(default=())


def records(setting: Setting) -> float:
    return setting.records


def columns(setting: Setting) -> float:
    return setting.columns


def sites(setting: Setting) -> float:
    return setting.sites


def studies(setting: Setting) -> float:
    return setting.studies


def of_gradient(setting: Setting) -> float | None:
    """The columns of a study whose gradients have so many numbers."""
    return setting.numbers / FEW if setting.numbers in GRADIENTS else None


def of_matrix(setting: Setting) -> float | None:
    """The columns of a matrix that has so many numbers."""
    return MATRICES.get(setting.numbers)


def components_at(width: int, setting: Setting) -> float | None:
    return setting.components if setting.columns == width else None


GRADIENTS = {FEW * d for d in WIDTHS}
MATRICES: dict[int, float] = {triangle(d): d for d in WIDTHS}

Place = Callable[[Setting], float | None]


def passes(x: Place, quantity: str = "processor_seconds") -> tuple[Series, ...]:
    """A site's two passes over its records."""
    return (
        Series(name="gradient, 4 directions", step="gradient", x=x, quantity=quantity),
        Series(name="matrix", step="gram", x=x, quantity=quantity, turn=1),
    )


def taking(check: str, x: Place) -> tuple[Series, ...]:
    """Steps of a coordinator on answers to one question, of which `x` are the columns."""
    return (
        Series(name="answer checked", step=check, x=columns, turn=2),
        Series(name="sum of 3 answers", step="sum", x=x, turn=3),
        Series(name="noise", step="noise", x=x, turn=4),
        Series(name="sealed, by the clock", step="seal", x=x, quantity="seconds", turn=5),
    )


PLOTS: dict[str, tuple[Plot, ...]] = {
    "n": (
        Plot(
            title="a site's pass", x="records, 20 columns",
            series=passes(records),
        ),
        Plot(
            title="the same, on all cores", x="records, 20 columns", y=CLOCK,
            series=passes(records, "seconds"),
        ),
        Plot(
            title="memory of that pass", x="records, 20 columns", y=BYTES,
            series=(
                *passes(records, "peak_bytes"),
                Series(name="records, stored", step="gram", x=records, quantity="stored_bytes", turn=2),
            ),
        ),
    ),
    "d": (
        Plot(
            title="a site's pass, 20 million values", x="columns",
            series=passes(columns),
        ),
        Plot(
            title="coordinator, gradient", x="columns",
            series=taking("gradient-check", of_gradient),
        ),
        Plot(
            title="coordinator, matrix", x="columns",
            series=(
                *taking("gram-check", of_matrix),
                Series(name="eigenvectors", step="eigen", x=columns, turn=6),
            ),
        ),
        Plot(
            title="an answer", x="columns", y=BYTES,
            series=passes(columns, "answer_bytes"),
        ),
        Plot(
            title="memory of a site's pass", x="columns", y=BYTES,
            series=passes(columns, "peak_bytes"),
        ),
        Plot(
            title="whole rounds", x="columns", y="seconds",
            series=(
                Series(
                    name="round of 3 sites, by the clock", step="round", x=columns, quantity="seconds", turn=7
                ),
                Series(name="next question computed", step="replay", x=columns, turn=8),
            ),
        ),
    ),
    "k": (
        Plot(
            title="a site's pass, 20 million values", x="components",
            series=(
                Series(name="20 columns", step="gradient", x=partial(components_at, 20)),
                Series(name="200 columns", step="gradient", x=partial(components_at, 200), turn=1),
            ),
        ),
        Plot(
            title="an answer", x="components", y=BYTES,
            series=(
                Series(
                    name="20 columns", step="gradient", x=partial(components_at, 20), quantity="answer_bytes"
                ),
                Series(
                    name="200 columns", step="gradient", x=partial(components_at, 200),
                    quantity="answer_bytes", turn=1,
                ),
            ),
        ),
    ),
    "sites": (
        Plot(
            title="a round", x="sites", y="seconds",
            series=(
                Series(name="median round, by the clock", step="round", x=sites, quantity="seconds"),
                Series(
                    name="coordinator's CPU", step="round", x=sites, quantity="coordinator_seconds", turn=1
                ),
                Series(name="all sites' CPU", step="round", x=sites, quantity="sites_seconds", turn=2),
            ),
        ),
        Plot(
            title="coordinator's memory", x="sites", y=BYTES,
            series=(Series(name="peak", step="round", x=sites, quantity="peak_bytes", turn=1),),
        ),
    ),
    "studies": (
        Plot(
            title="a round, in turns", x="past studies", y=CLOCK,
            series=(
                Series(name="with past studies", step="past", x=studies, quantity="seconds"),
                Series(name="without", step="past", x=studies, quantity="alone_seconds", turn=7),
            ),
        ),
        Plot(
            title="start, and all listed", x="past studies", y=CLOCK,
            series=(
                Series(name="coordinator starts", step="past", x=studies, quantity="start_seconds", turn=2),
                Series(name="studies listed", step="past", x=studies, quantity="list_seconds", turn=3),
            ),
        ),
        Plot(
            title="coordinator's memory", x="past studies", y=BYTES,
            series=(Series(name="peak", step="past", x=studies, quantity="peak_bytes", turn=1),),
        ),
    ),
}  # fmt: skip


def draw(part: str, points: Sequence[Point], every: Sequence[Point], out: Path) -> None:
    """NAME.png of a part's points; laws are fitted to those of all parts."""
    plots, models = PLOTS[part], fitted(every)
    table = Table(out / part)
    for plot in plots:
        for series in plot.series:
            for x, point in series.shown(points):
                cell = _cell(plot, series, x, point.measured[series.quantity])
                table.cells[cell.panel, cell.series, cell.x] = cell
    panels = [_panel(plot, points) for plot in plots]
    draw_panels(
        table, panels, out / f"{part}.png", columns=min(3, len(panels)), width=3.4, legend_columns=4,
        also=partial(_lines, plots, points, models),
    )  # fmt: skip


def _panel(plot: Plot, points: Sequence[Point]) -> Panel:
    shown = [series for series in plot.series if series.shown(points)]
    return Panel(
        key=plot.title, title=plot.title, x=plot.x, y=plot.y, series=tuple(one.name for one in shown),
        looks={
            one.name: LOOKS[one.turn] for one in shown
        },
    )  # fmt: skip


def _cell(plot: Plot, series: Series, x: float, y: float) -> Cell:
    return Cell(
        panel=plot.title, series=series.name, x=x, median=y, low=y, high=y, mean=y, released=1.0, repeats=1,
        setting="",
    )  # fmt: skip


def _lines(plots: Sequence[Plot], points: Sequence[Point], models: Laws, panel: Panel, axes: Axes) -> None:
    """Draw the laws at the measured places."""
    (plot,) = (one for one in plots if one.title == panel.key)
    for series in plot.series:
        distribution = models.get((series.step, series.quantity))
        shown = series.shown(points)
        if distribution is not None and shown:
            x, y = [pair[0] for pair in shown], [distribution(pair[1].setting) for pair in shown]
            axes.plot(x, y, label="the fitted law", zorder=5, **LAW)  # type: ignore[arg-type]
