"""Counts of the lines of the records: all, used and lost by their reason, and of the cells that cannot be
read. They are of the whole source and of every column that studies may use, so that no study changes them.
They stay at the site, as its people alone see them; a line of a source that is no text is a row."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.errors import Code, InternalError
from eigenveil_client.records.tables.lost import LostLines

LONGEST_CELL = 40  # characters of an example


@dataclass(frozen=True, slots=True, kw_only=True)
class CellExample:
    """A cell that cannot be read: its place, and its text, cut to `LONGEST_CELL` characters. It is shown to
    the site's own people; no log and no message holds it."""

    place: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableCells:
    """Number of a column's cells in used lines that cannot be read, the fault of the first, and the first
    of them. `fillers`: the one or two words that are all of them, if they may mean "no value"."""

    column: str
    cells: int
    what: str
    examples: tuple[CellExample, ...]
    fillers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCounts:
    """Counts of one version of the records, whose digest is `version`.

    `lines`: all but the header, what is before it, units below it and empty ones; each is used or lost.
    `skipped`: lines before the header. `repeated`: lines that equal an earlier one, used or lost, for
    information; None if they are not compared. `cells`: of each column with unreadable cells.
    `not_numbers`: columns that hold text or dates, and that nothing names: neither a rule, nor an offer, nor
    a dictionary."""

    version: bytes
    lines: int
    used: int
    lost: tuple[LostLines, ...] = ()
    skipped: int = 0
    repeated: int | None = None
    cells: tuple[UnreadableCells, ...] = ()
    not_numbers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.lines != self.used + self.all_lost:
            raise InternalError(Code.BUG, "the lines of the records are not the used and the lost ones")

    @property
    def all_lost(self) -> int:
        """The number of lost lines, whatever the reason."""
        return sum(one.lines for one in self.lost)
