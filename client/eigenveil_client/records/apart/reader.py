"""Records as the rest of the program reads them: each call has a process of its own do it, and holds what
that says to the form that it must have. It is not believed any further.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eigenveil.study.grid import GridRows
from eigenveil.study.study import Study
from eigenveil_client.records.apart.checked import add, column_profile, count, digest_of, quality, text, texts
from eigenveil_client.records.apart.frames import Broken
from eigenveil_client.records.apart.process import USUAL, Limits, ask
from eigenveil_client.records.apart.works import (
    COUNTS,
    Digest,
    ListColumns,
    ListVariants,
    Open,
    Places,
    ProfileColumns,
    ReadRecords,
)
from eigenveil_client.records.genotypes.listed import Listed
from eigenveil_client.records.overflow.scratch import SYSTEM, Scratch
from eigenveil_client.records.profile import ColumnProfile
from eigenveil_client.records.quality import NO_RANGES, Bounds, ColumnQuality, Ranges
from eigenveil_client.records.records import LINES, Counted, Keep, Records, Rules, check_study, gathered
from eigenveil_client.records.tables.cells import Unreadable
from eigenveil_client.records.tables.config import RecordsConfig
from eigenveil_client.records.tables.table import BadRecords
from eigenveil_common.log import event

BAD_COLUMNS = 4  # columns with bad cells for each that a study or a rule names: what is read beside it


def load(path: Path, study: Study, *, limits: Limits = USUAL) -> GridRows:
    """The rows of `read`, in a file of which nothing else is said and without a rule."""
    return read(RecordsConfig(source=path), study, limits=limits).rows


def read(
    said: RecordsConfig,
    study: Study,
    *,
    rules: Rules = (),
    plausible: Ranges = NO_RANGES,
    unreadable: Callable[[Unreadable], None] | None = None,
    limits: Limits = USUAL,
) -> Records:
    """The records of `stream`, all in memory."""
    return gathered(
        study,
        lambda keep: stream(
            said, study, keep, rules=rules, plausible=plausible, unreadable=unreadable, limits=limits
        ),
    )


def stream(
    said: RecordsConfig,
    study: Study,
    keep: Keep,
    *,
    rules: Rules = (),
    plausible: Ranges = NO_RANGES,
    unreadable: Callable[[Unreadable], None] | None = None,
    scratch: Scratch = SYSTEM,
    limits: Limits = USUAL,
    most: int | None = None,
) -> Counted:
    """`records.stream` in a process of its own: rows within the grid, no more than there are persons or
    than `most` (without it, than the study allows). `keep` and `unreadable` are called here; the latter at
    the end, once for each column.

    Raises:
        RequestError: as `records.stream`; code `bad-config`, a library is not installed.
        BadRecords: as there, or there are too many records, or the reader died of them.
    """
    check_study(study, rules, plausible)  # here: which of our own words is told, no record decides
    got = _Got(study, rules, keep, study.max_records if most is None else most)
    work = ReadRecords(
        study=study, rules=rules, plausible=dict(plausible), tolerant=unreadable is not None, scratch=scratch
    )
    done = ask(said, work, item=got.item, keep=got.rows, limits=limits, check=got.end)
    for one in got.bad if unreadable is not None else ():
        unreadable(one)  # type: ignore[misc]
    return done


class _Got:
    """What a reader of records has said so far."""

    def __init__(self, study: Study, rules: Rules, keep: Keep, most: int) -> None:
        self._study = study
        self._keep = keep
        self._most = most
        self._most_bad = BAD_COLUMNS * (study.dimension + len(rules))
        self._records = 0
        self._counts: list[Any] = []
        self.bad: list[Unreadable] = []

    def rows(self, rows: GridRows) -> None:
        self._records += len(rows)
        if self._records > self._most:  # a small file can state any number: each would be stored here
            raise BadRecords(
                f"there are over {self._most} records, the most that there may be; is the file damaged? If "
                "not, raise maximum_records in site.toml, or the study's max_records",
                about="too-many",
            )
        self._keep(rows)

    def item(self, one: Any) -> None:
        if isinstance(one, list) and len(one) == len(COUNTS):
            add(self._counts, [one], self._study.dimension)
            return
        column, cells, first, what = _four(one)
        name = None if column is None else text(column)
        bad = Unreadable(column=name, cells=count(cells), first=count(first), what=text(what))
        add(self.bad, [bad], self._most_bad)

    def end(self, done: Any) -> Counted:
        if not isinstance(done, dict) or len(self._counts) != self._study.dimension:
            raise Broken
        persons = count(done.get("persons"))
        found: tuple[ColumnQuality, ...] = tuple(
            quality(column.name, counts, persons)
            for column, counts in zip(self._study.columns, self._counts, strict=True)
        )
        if self._records > persons:
            raise Broken
        return Counted(persons=persons, file=digest_of(done.get("file")), quality=found)


def _four(one: Any) -> list[Any]:
    if not isinstance(one, list) or len(one) != 4:
        raise Broken
    return one


def check_opens(said: RecordsConfig, limits: Limits = USUAL) -> None:
    """Insist that the records can be opened, whatever columns they have. Raises as `stream`."""
    ask(said, Open(), check=lambda done: None, limits=limits)


def columns(said: RecordsConfig, limits: Limits = USUAL) -> tuple[str, ...]:
    """The names of the columns, as the records write them. Raises as `stream`."""
    return _listed(said, limits)[0]


def files(said: RecordsConfig, limits: Limits = USUAL) -> tuple[Path, ...]:
    """The files with records of their own: the Parquet files of a folder, or the one that is stated; what
    lies beside a .bed has none. Raises as `stream`."""
    found = _listed(said, limits)[1]
    return said.files[:1] if found is None else found


def _listed(said: RecordsConfig, limits: Limits) -> tuple[tuple[str, ...], tuple[Path, ...] | None]:
    names: list[str] = []
    paths: list[Path] = []

    def item(one: Any) -> None:
        if isinstance(one, str):
            add(paths, [Path(text(one))])
        else:
            add(names, texts(one))

    def check(done: Any) -> tuple[Path, ...] | None:
        if done not in (None, len(paths)):
            raise Broken
        return None if done is None else tuple(paths)

    found = ask(said, ListColumns(), item=item, limits=limits, check=check)
    return tuple(names), found


def digest(said: RecordsConfig, limits: Limits = USUAL) -> bytes:
    """Of all of the records. Raises as `stream`."""
    return ask(said, Digest(), limits=limits, check=digest_of)


def places(said: RecordsConfig, rows: Sequence[tuple[int, bool]], limits: Limits = USUAL) -> list[str]:
    """Where a person finds rows, or (not whole) lines that are left out. Raises as `stream`."""
    found: list[str] = []

    def check(done: Any) -> list[str]:
        if len(found) != len(rows):
            raise Broken
        return found

    def item(one: Any) -> None:
        add(found, [text(one)], len(rows))

    return ask(said, Places(rows=tuple(rows)), item=item, limits=limits, check=check)


def profile(
    said: RecordsConfig,
    rules: Rules,
    wanted: Mapping[str, Bounds | None],
    person: str | None,
    limits: Limits = USUAL,
) -> list[ColumnProfile]:
    """A profile of each column that is `wanted`, by name, with its bounds if there are any. Raises as
    `stream`."""
    found: list[ColumnProfile] = []
    work = ProfileColumns(rules=rules, columns=dict(wanted), person=person)

    def check(done: Any) -> list[ColumnProfile]:
        if [one.name for one in found] != list(wanted):
            raise Broken
        return found

    def item(one: Any) -> None:
        add(found, [column_profile(one, COUNTS)], len(wanted))

    return ask(said, work, item=item, limits=limits, check=check)


def variants(path: Path, limits: Limits = USUAL) -> Listed:
    """The variants that a file of genotypes lists. Raises as `stream`."""
    names: list[str] = []
    said = RecordsConfig(source=path)
    left_out = ask(
        said, ListVariants(path=path), item=lambda one: add(names, texts(one)), limits=limits, check=count
    )
    return Listed(columns=tuple(names), left_out=left_out)


class Reader:
    """Reads a site's records for its daemon: a cell that is no number is a missing value of its record, and a
    line with too many or too few cells is no record.

    One such cell must not show itself to the coordinator as a refusal; the operator is warned of its
    column, once, and finds the line with `eigenveil-site check`.
    """

    def __init__(
        self,
        said: RecordsConfig,
        rules: Rules,
        plausible: Ranges,
        scratch: Scratch,
        limits: Limits = USUAL,
        most: int | None = None,
    ) -> None:
        self._said = said
        self._rules = rules
        self._plausible = plausible
        self._scratch = scratch
        self._limits = limits
        self._most = most
        self._warned: set[str] = set()

    def __call__(self, study: Study, keep: Keep = lambda rows: None) -> Counted:
        """Read a study's records, each handed to `keep`. Raises as `stream`."""
        found: set[str] = set()
        tell: Callable[[Unreadable], None] = lambda cells: found.add(cells.column or LINES)  # noqa: E731
        taken = stream(
            self._said, study, keep, rules=self._rules, plausible=self._plausible,
            unreadable=tell, scratch=self._scratch, limits=self._limits, most=self._most,
        )  # fmt: skip
        if found - self._warned:
            event("cells-unreadable", logging.WARNING, columns=", ".join(sorted(found - self._warned)))
            self._warned |= found
        return taken
