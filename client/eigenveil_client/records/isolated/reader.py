"""Functions that read records: each call runs in an isolated process and checks its messages. Beyond these
checks the process is not trusted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from eigenveil.study.grid import GridRows
from eigenveil.study.study import Study
from eigenveil_client.records.column_quality import COUNTS, Bounds, ColumnProfile, PlausibleRanges
from eigenveil_client.records.isolated.checked import (
    add,
    column_profile,
    count,
    counts_of,
    digest_of,
    lost_lines,
    quality,
    text,
    texts,
    unreadable_cells,
)
from eigenveil_client.records.isolated.frames import ReaderFailure
from eigenveil_client.records.isolated.process import DEFAULT_LIMITS, ReaderLimits, run_task
from eigenveil_client.records.isolated.requests import ReaderTask, Task
from eigenveil_client.records.line_counts import LineCounts, UnreadableCells
from eigenveil_client.records.recoding.offered import EVERY_COLUMN, OfferedColumns
from eigenveil_client.records.recoding.rule import Rules
from eigenveil_client.records.scratch_files import SYSTEM, Scratch
from eigenveil_client.records.summary import (
    LINES,
    Records,
    RecordsSummary,
    RowSink,
    VariantList,
    check_study,
    gathered,
)
from eigenveil_client.records.tables.lost import LostLines, LostReason
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig
from eigenveil_common.log import event

if TYPE_CHECKING:
    from eigenveil_client.records.tables.cells import OnUnreadable

Made = TypeVar("Made")
BAD_COLUMNS = 4  # columns with bad cells for each that a study or a rule names, as rules read further columns


def load(path: Path, study: Study, *, limits: ReaderLimits = DEFAULT_LIMITS) -> GridRows:
    """Return the rows of a file, with default settings and without a rule."""
    return Reader(RecordsConfig(source=path), limits=limits).read(study).rows


@dataclass(slots=True)
class Reader:
    """Reader of a site's records. No more than the persons, or `most` (default: the study's max_records), are
    accepted."""

    config: RecordsConfig
    rules: Rules = ()
    plausible: PlausibleRanges = field(default_factory=dict)
    scratch: Scratch = SYSTEM
    limits: ReaderLimits = DEFAULT_LIMITS
    most: int | None = None
    offered: OfferedColumns = EVERY_COLUMN
    _warned: set[str] = field(default_factory=set, init=False)

    def __call__(self, study: Study, sink: RowSink = lambda rows: None) -> RecordsSummary:
        """Read a study's records for a daemon, each passed to `sink`.

        A cell that is not a number is a missing value, and a line with too many or too few cells is lost.

        Privacy: one such cell must not be visible to the coordinator as a refusal. The operator is warned of
        its column, once, and finds the line with `eigenveil-site check`.

        Raises as `stream`."""
        found: set[str] = set()
        taken = self.stream(study, sink, lambda column: found.add(column or LINES))
        if found - self._warned:
            event("cells-unreadable", logging.WARNING, columns=", ".join(sorted(found - self._warned)))
            self._warned |= found
        return taken

    def read(self, study: Study, unreadable: OnUnreadable | None = None) -> Records:
        """Return the records of `stream`, all in memory."""
        return gathered(study, lambda sink: self.stream(study, sink, unreadable))

    def stream(self, study: Study, sink: RowSink, unreadable: OnUnreadable | None = None) -> RecordsSummary:
        """Run `records.stream` in an isolated process. Rows are within the grid. `sink` and `unreadable` are
        called in this process, the latter at the end, once for each column.

        Raises:
            RequestError: as `records.stream`; code `bad-config`, a library is not installed.
            BadRecords: as there, or there are too many records, or the reader failed."""
        # here, so that no record decides which error is raised
        check_study(study, self.rules, self.plausible, self.config.person)
        most = study.max_records if self.most is None else self.most
        received = _ReceivedRecords(study, self.rules, sink, most)
        task = partial(
            ReaderTask.READ_RECORDS, study=study, rules=self.rules, plausible=dict(self.plausible),
            tolerant=unreadable is not None, scratch=self.scratch, offered=self.offered,
        )  # fmt: skip
        done = run_task(
            self.config, task, study=study, scratch=self.scratch.folder,
            item=received.item, sink=received.rows, limits=self.limits, check=received.end,
        )  # fmt: skip
        if unreadable is not None:
            for one in received.bad:
                unreadable(one)
        return done


class _ReceivedRecords:
    """Checked messages of a reader of records so far."""

    def __init__(self, study: Study, rules: Rules, sink: RowSink, most: int) -> None:
        self._study, self._sink, self._most = study, sink, most
        self._most_bad = BAD_COLUMNS * (study.dimension + len(rules))
        self._records = 0
        self._counts: list[Any] = []
        self.bad: list[str | None] = []

    def rows(self, rows: GridRows) -> None:
        self._records += len(rows)
        if self._records > self._most:  # a small file can state any number
            raise BadRecords(
                f"there are over {self._most} records, the largest number allowed. If the file is not "
                "damaged, raise maximum_records in site.toml, or the study's max_records",
                about="too-many",
            )
        self._sink(rows)

    def item(self, one: Any) -> None:
        if isinstance(one, list) and len(one) == len(COUNTS):
            add(self._counts, [one], self._study.dimension)
            return
        add(self.bad, [None if one is None else text(one)], self._most_bad)

    def end(self, done: Any) -> RecordsSummary:
        if not isinstance(done, dict) or len(self._counts) != self._study.dimension:
            raise ReaderFailure
        persons = count(done.get("persons"))
        columns = zip(self._study.columns, self._counts, strict=True)
        found = tuple(quality(one.name, counts, persons) for one, counts in columns)
        lines = count(done.get("lines"))
        lost = count(done.get("lost"), lines)
        if self._records > persons:
            raise ReaderFailure
        digests = {name: digest_of(done.get(name)) for name in ("file", "version")}
        return RecordsSummary(persons=persons, quality=found, lines=lines, lost=lost, **digests)


def line_counts(
    config: RecordsConfig,
    rules: Rules,
    offered: OfferedColumns,
    person: str | None,
    limits: ReaderLimits = DEFAULT_LIMITS,
) -> LineCounts:
    """Return the counts of the lines and cells of the records, for the site's own people. Raises as
    `stream`."""
    lost: list[LostLines] = []
    cells: list[UnreadableCells] = []
    names: list[str] = []

    def item(one: Any) -> None:
        if isinstance(one, dict):
            add(cells, [unreadable_cells(one)])
        elif isinstance(one, list) and len(one) == 3 and isinstance(one[2], list):
            add(lost, [lost_lines(one)], len(LostReason))
        else:
            add(names, texts(one))

    task = partial(ReaderTask.COUNT_LINES, rules=rules, offered=offered, person=person)
    return run_task(
        config, task, item=item, limits=limits, check=lambda done: counts_of(done, lost, cells, names)
    )


def check_opens(config: RecordsConfig, limits: ReaderLimits = DEFAULT_LIMITS) -> None:
    """Raise an error if the records cannot be opened, whatever columns they have. Raises as `stream`."""
    run_task(config, ReaderTask.CHECK_SOURCE, check=lambda done: None, limits=limits)


def columns(config: RecordsConfig, limits: ReaderLimits = DEFAULT_LIMITS) -> tuple[str, ...]:
    """Return the names of the columns, as the records spell them. Raises as `stream`."""
    return _listed(config, limits)[0]


def files(config: RecordsConfig, limits: ReaderLimits = DEFAULT_LIMITS) -> tuple[Path, ...]:
    """Return the files that hold records: the Parquet files of a folder, or the stated file. The .bim and
    .fam beside a .bed hold none. Raises as `stream`."""
    found = _listed(config, limits)[1]
    return config.files[:1] if found is None else found


def _listed(config: RecordsConfig, limits: ReaderLimits) -> tuple[tuple[str, ...], tuple[Path, ...] | None]:
    names: list[str] = []
    paths: list[Path] = []

    def item(one: Any) -> None:
        if isinstance(one, str):
            add(paths, [Path(text(one))])
        else:
            add(names, texts(one))

    def check(done: Any) -> tuple[Path, ...] | None:
        if done not in (None, len(paths)):
            raise ReaderFailure
        return None if done is None else tuple(paths)

    found = run_task(config, ReaderTask.LIST_COLUMNS, item=item, limits=limits, check=check)
    return tuple(names), found


def digest(config: RecordsConfig, limits: ReaderLimits = DEFAULT_LIMITS) -> bytes:
    """Return the digest of all records. Raises as `stream`."""
    return run_task(config, ReaderTask.DIGEST_SOURCE, limits=limits, check=digest_of)


def profile(
    config: RecordsConfig,
    rules: Rules,
    wanted: Mapping[str, Bounds | None],
    person: str | None,
    limits: ReaderLimits = DEFAULT_LIMITS,
) -> list[ColumnProfile]:
    """Return a profile of each column in `wanted`, which maps names to bounds, if any. Raises as `stream`."""
    task = partial(ReaderTask.PROFILE_COLUMNS, rules=rules, columns=dict(wanted), person=person)
    names = list(wanted)
    return _items(
        config, task, limits, column_profile, len(names), lambda found: [one.name for one in found] == names
    )


def _items(
    config: RecordsConfig,
    task: Task,
    limits: ReaderLimits,
    parse: Callable[[Any], Made],
    most: int,
    whole: Callable[[list[Made]], bool],
) -> list[Made]:
    """Return the items of a task, at most `most`, if they are `whole`."""
    found: list[Made] = []

    def check(done: Any) -> list[Made]:
        if not whole(found):
            raise ReaderFailure
        return found

    return run_task(config, task, item=lambda one: add(found, [parse(one)], most), limits=limits, check=check)


def variants(path: Path, limits: ReaderLimits = DEFAULT_LIMITS) -> VariantList:
    """Return the variants that a file of genotypes lists. Raises as `stream`."""
    names: list[str] = []
    left_out = run_task(
        RecordsConfig(source=path), ReaderTask.LIST_VARIANTS,
        item=lambda one: add(names, texts(one)), limits=limits, check=count,
    )  # fmt: skip
    return VariantList(columns=tuple(names), left_out=left_out)
