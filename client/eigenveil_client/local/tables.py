"""Tables and pictures of a comparison and of a release: rows, CSV file, short texts, figures. Short texts are
of sines, sizes, times and trust models. The picture of a comparison has one line for each algorithm, the
least error on top. All pictures of a release are in one figure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich import box
from rich.table import Table

from eigenveil.accounting.formatting import shown_up
from eigenveil.reporting.document import HasRelease
from eigenveil.reporting.figures.components import loadings, scree, strongest_columns
from eigenveil.reporting.figures.figure import BLUE, GRID, RED, SOFT, ReleaseFigureData
from eigenveil.reporting.figures.loadings import arrows_of, biplot, heatmap, pair_matrix
from eigenveil_client.local.options import write_figure

TRUST = (
    "trust: whether the coordinator adds noise to exact sums (sums), must work on them (exact), or sees "
    "none, because sites send masked answers with their share of the noise (masked)."
)
UNITS = ("B", "kB", "MB", "GB", "TB")


def sine_text(sine: float) -> str:
    """Return a sine in at most six characters: 5e-05, 0.0042, 0.31, 1."""
    return f"{sine:.1g}" if sine >= 0.995 or sine < 0.001 else f"{sine:.2g}"


def size_text(count: int) -> str:
    """Return bytes in decimal units, in at most six characters: 5.2 kB."""
    size, unit = float(count), 0
    while size >= 999.5 and unit + 1 < len(UNITS):
        size, unit = size / 1000, unit + 1
    digits = 1 if unit and size < 9.95 else 0
    return f"{size:.{digits}f} {UNITS[unit]}"


def trust_label(trusted: bool, masked: bool) -> str:
    """Return the label that `TRUST` explains."""
    return "masked" if masked else "exact" if trusted else "sums"


def seconds_text(seconds: float) -> str:
    """Return a time in at most six characters: 17 ms, 1.3 s, 12 s, 3 min."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """Result of one algorithm. None: not known, or not applicable.

    `sin_angle` is the median sine to the records' exact components over the repeats that released components,
    from `sin_least` to `sin_most`. `frobenius` is the median of ||C' - C|| / ||C|| if there is a covariance
    C'. `predicted` is the error that the release states. `distance` is the sine to that of `reference`.
    `custom` marks a custom algorithm. `outcome` is the reason for no run or no release."""

    algorithm: str
    custom: bool = False
    private: bool = True
    trusted: bool = False
    masked: bool = False
    repeats: int = 0
    sin_angle: float | None = None
    sin_least: float | None = None
    sin_most: float | None = None
    frobenius: float | None = None
    predicted: float | None = None
    distance: float | None = None
    reference: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    micro_rho: int | None = None
    rounds: int | None = None
    bytes_per_site: int | None = None
    seconds: float | None = None
    study: str | None = None
    outcome: str = ""

    @property
    def label(self) -> str:
        """Name of the algorithm, marked if it is custom or not private."""
        return self.algorithm + (" (your own)" if self.custom else "" if self.private else " (NOT PRIVATE)")

    @property
    def trust(self) -> str:
        """Label of the trust model, which `TRUST` explains; "none" if nothing is private."""
        return trust_label(self.trusted, self.masked) if self.private else "none"


def plain_table(names: Sequence[str], gap: int = 1) -> Table:
    """Return an empty table with these headings, in which text is on the left and numbers on the right."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in ("algorithm", "trust") else "right", no_wrap=True)
    return table


def ordered(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the rows in order: least error first, then no release, then no run."""

    def key(row: ComparisonRow) -> tuple[bool, float]:
        known = row.sin_angle if row.sin_angle is not None else row.predicted
        return row.seconds is None, math.inf if known is None else known

    return sorted(rows, key=key)


def as_csv(rows: Sequence[ComparisonRow]) -> str:
    """Return one CSV line for each algorithm, with empty cells for unknown values."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(ComparisonRow)])
    writer.writeheader()
    writer.writerows(asdict(row) for row in ordered(rows))
    return out.getvalue()


def comparison_table(rows: Sequence[ComparisonRow]) -> Table:
    """Return the printed table of the algorithms that ran, without empty columns."""
    ran = [row for row in ordered(rows) if row.seconds is not None]
    shown = {name: cell for name, cell in CELLS if any(cell(row) for row in ran)}
    out = plain_table([*shown], gap=0)
    for row in ran:
        out.add_row(*(cell(row) for cell in shown.values()), style=None if row.private else "red")
    return out


def remarks(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return the reasons why algorithms did not run or release."""
    return [f"{row.label}: {row.outcome}" for row in ordered(rows) if row.outcome]


def _sine(value: float | None) -> str:
    return "" if value is None else sine_text(value)


Cell = Callable[[ComparisonRow], str]
CELLS: tuple[tuple[str, Cell], ...] = (
    ("algorithm", lambda row: row.label),
    ("error", lambda row: _sine(row.sin_angle)),
    ("matrix", lambda row: "" if row.frobenius is None else f"{row.frobenius:.2g}"),
    ("stated", lambda row: _sine(row.predicted)),
    ("distance", lambda row: _sine(row.distance)),
    ("eps", lambda row: "" if row.epsilon is None else shown_up(row.epsilon)),
    ("delta", lambda row: "" if row.delta is None else shown_up(row.delta, 2)),
    ("rounds", lambda row: "" if row.rounds is None else str(row.rounds)),
    ("bytes", lambda row: "" if row.bytes_per_site is None else size_text(row.bytes_per_site)),
    ("time", lambda row: "" if row.seconds is None else seconds_text(row.seconds)),
    ("trust", lambda row: row.trust),
)


WIDTH = 12.0  # inches


def draw_overview(path: Path, release: HasRelease) -> None:
    """Draw variances and loadings, and arrows and correlations if the release has them."""
    subject = ReleaseFigureData.of(release)
    panels: list[Callable[[Axes], None]] = [
        lambda axes: scree(axes, subject),
        lambda axes: loadings(axes, subject),
    ]
    if subject.k >= 2:
        arrows = arrows_of(subject)
        panels.append(lambda axes: biplot(axes, arrows, subject.result.columns, None))
    if subject.result.noise is not None and len(subject.result.columns) >= 2:
        correlations = pair_matrix(subject, "correlation")
        panels.append(lambda axes: heatmap(axes, correlations, subject.result.columns))
    rows = -(-len(panels) // 2)
    row_height = max(4.0, 0.9 + 0.205 * len(strongest_columns(subject)))

    def draw_panels(figure: Figure) -> None:
        private = "" if release.document["private"] else ": NOT PRIVATE"
        figure.suptitle(f"{subject.study.name}, {subject.algorithm}{private}", fontsize=11)
        for axes, paint in zip(figure.subplots(rows, 2).flat, panels, strict=False):
            paint(axes)
        for axes in figure.axes[len(panels) : 2 * rows]:
            axes.set_visible(False)

    write_figure(path, (WIDTH, rows * row_height), draw_panels)


def rows_with_error(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the rows with an error to draw."""
    return [row for row in ordered(rows) if row.sin_angle is not None or row.predicted is not None]


def draw_comparison(path: Path, rows: Sequence[ComparisonRow], title: str) -> None:
    """Draw the measured errors with the range over the repeats, and the errors stated by the releases."""
    known = rows_with_error(rows)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        positions = np.arange(len(known))
        for name, marker, colour in (("sin_angle", "o", BLUE), ("predicted", "x", RED)):
            indices = [i for i, row in enumerate(known) if getattr(row, name) is not None]
            label = "measured" if name == "sin_angle" else "stated by the release"
            if indices:
                values = [getattr(known[i], name) for i in indices]
                axes.scatter(values, positions[indices], marker=marker, color=colour, zorder=3, label=label)
        for i, row in enumerate(known):
            if row.sin_least is not None and row.sin_most is not None:
                axes.plot([row.sin_least, row.sin_most], [i, i], color=SOFT, lw=2, zorder=2)
        axes.set_yticks(positions, [row.label for row in known])
        axes.set(ylim=(len(known) - 0.5, -0.5), xlim=(0, None), xlabel="error (0: exact, 1: noise)")
        axes.set_title(title, fontsize=11)
        axes.grid(axis="x", color=GRID, lw=0.8)
        axes.legend(loc="best", fontsize=9)

    write_figure(path, (7.0, 1.4 + 0.32 * max(len(known), 1)), paint)
