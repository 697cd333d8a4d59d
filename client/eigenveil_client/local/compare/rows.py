"""One line of a comparison: how an algorithm did, and as a table, JSON or CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields

from rich import box
from rich.table import Table

from eigenveil.accounting.digits import shown_up
from eigenveil_client.local.format import seconds_text, sine_text, size_text, trust_word


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How one algorithm did. None: not known, or it does not apply.

    `sin_angle` is the median sine to the records' exact components over the repeats that released something,
    from `sin_least` to `sin_most`; `frobenius` the median of ||C' - C|| / ||C|| for those that give a
    covariance C'. `predicted` is the error that the release itself states, and `apart` the sine to the
    release of `beside`. `own`: it is the user's own. `outcome` says what kept it from running or releasing.
    """

    algorithm: str
    own: bool = False
    private: bool = True
    trusted: bool = False
    masked: bool = False
    repeats: int = 0
    sin_angle: float | None = None
    sin_least: float | None = None
    sin_most: float | None = None
    frobenius: float | None = None
    predicted: float | None = None
    apart: float | None = None
    beside: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    micro_rho: int | None = None
    rounds: int | None = None
    bytes_per_site: int | None = None
    seconds: float | None = None
    study: str | None = None
    outcome: str = ""

    @property
    def ran(self) -> bool:
        """Whether it was run at all."""
        return self.seconds is not None

    @property
    def label(self) -> str:
        """Its name, and what else one must know of it."""
        return self.algorithm + (" (your own)" if self.own else "" if self.private else " (NOT PRIVATE)")

    @property
    def trust(self) -> str:
        """What the coordinator is trusted with: see `TRUST`; all records, where nothing is private."""
        return trust_word(self.trusted, self.masked) if self.private else "none"


def ordered(rows: Sequence[Row]) -> list[Row]:
    """The least error first; then what released nothing, and what did not run."""

    def key(row: Row) -> tuple[bool, float]:
        known = row.sin_angle if row.sin_angle is not None else row.predicted
        return not row.ran, math.inf if known is None else known

    return sorted(rows, key=key)


def as_csv(rows: Sequence[Row]) -> str:
    """One line an algorithm, empty where a value is not known."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(Row)])
    writer.writeheader()
    writer.writerows(asdict(row) for row in ordered(rows))
    return out.getvalue()


def table(rows: Sequence[Row]) -> Table:
    """What ran, for a person; columns that no row fills are left out."""
    ran = [row for row in ordered(rows) if row.ran]
    out = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    shown = [(name, cell) for name, cell in CELLS if any(cell(row) for row in ran)]
    for name, _ in shown:
        out.add_column(name, justify="left" if name in ("algorithm", "trust") else "right", no_wrap=True)
    for row in ran:
        out.add_row(*(cell(row) for _, cell in shown), style=None if row.private else "red")
    return out


def remarks(rows: Sequence[Row]) -> list[str]:
    """What kept algorithms from running or releasing."""
    return [f"{row.label}: {row.outcome}" for row in ordered(rows) if row.outcome]


def _sine(value: float | None) -> str:
    return "" if value is None else sine_text(value)


Cell = Callable[[Row], str]
CELLS: tuple[tuple[str, Cell], ...] = (
    ("algorithm", lambda row: row.label),
    ("error", lambda row: _sine(row.sin_angle)),
    ("matrix", lambda row: "" if row.frobenius is None else f"{row.frobenius:.2g}"),
    ("stated", lambda row: _sine(row.predicted)),
    ("apart", lambda row: _sine(row.apart)),
    ("eps", lambda row: "" if row.epsilon is None else shown_up(row.epsilon)),
    ("delta", lambda row: "" if row.delta is None else shown_up(row.delta, 2)),
    ("rounds", lambda row: "" if row.rounds is None else str(row.rounds)),
    ("bytes", lambda row: "" if row.bytes_per_site is None else size_text(row.bytes_per_site)),
    ("time", lambda row: "" if row.seconds is None else seconds_text(row.seconds)),
    ("trust", lambda row: row.trust),
)
