"""Engines that store the records of running studies: in memory, in a file beside the state, on a cluster."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Protocol

import numpy as np

from eigenveil.dictionary.site_limits import MIB, memory_verdict
from eigenveil.dictionary.site_rules import Verdict
from eigenveil.numerics.encoding import IntArray
from eigenveil.numerics.linalg import single_blas_thread
from eigenveil.planning.choose import possible_rehearsals
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import (
    ClippedSum,
    ColumnHistograms,
    ColumnMoments,
    Count,
    Frame,
    Gradient,
    GradientNorms,
    Query,
    SquaredNormSum,
    needs_all_rows,
)
from eigenveil.queries.rows import RowBins
from eigenveil.site.record_view import StoredRows
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows, stored_dtype, unit
from eigenveil.study.study import Study
from eigenveil_client.records.column_quality import ColumnQuality
from eigenveil_client.records.isolated import reader
from eigenveil_client.records.scratch_files import GridFile, GridSink, Scratch
from eigenveil_client.records.summary import RecordsSummary, RowSink, records_digest
from eigenveil_client.records.tables.source import BadRecords
from eigenveil_client.site.config import (
    EngineConfig,
    EngineKind,
    SiteConfig,
    plausible_ranges,
    record_reader,
)
from eigenveil_client.site.engine.dask import DaskEngine
from eigenveil_client.site.engine.kept_grids import KeptGrid, KeptGrids, Require, always, grid_study
from eigenveil_client.site.engine.progress import LoadProgress
from eigenveil_common.concurrency import CORES

HOUR_SECONDS = 3600.0
REMEMBERED_PLANS = 64  # others are rehearsed again when their records are loaded
QUICK_PRODUCTS = 2**22  # of numbers of the records: some milliseconds of one core
# Kinds with a product for each number of a record and of the query; others have one for each pair of columns.
COLUMNWISE = (Count, ClippedSum, SquaredNormSum, RowBins, ColumnHistograms, ColumnMoments)
LINEAR = (*COLUMNWISE, Gradient, GradientNorms)


class LoadedRecords(Protocol):
    """Loaded records of one study, ready for queries.

    `persons` is the number in the whole source, before records with missing values are dropped. `file` is the
    digest of the source with its rules and of the study's rows. `quality` has each column's quality over all
    persons, in the study's order. `lines`, `lost` and `version` are of the whole source: see `LineCounts`."""

    persons: int
    file: bytes
    quality: tuple[ColumnQuality, ...]
    lines: int
    lost: int
    version: bytes

    def is_quick(self, kind: type[Query], numbers: int) -> bool:
        """True if an answer to a query of this kind, stated in so many numbers, takes some milliseconds."""

    def answer(self, query: Query, frame: Frame | None) -> IntArray:
        """Return the exact sum over the records in the frame: the same integers in every engine.
        Shape: (query.length,).

        Privacy: none by itself; it goes to the barrier [P1].

        Raises:
            BadRecords: they are unreadable now; close them and load them again."""

    def close(self) -> None:
        """Release the records and their storage; may be repeated."""


class RecordEngine(Protocol):
    """Loader and storage of records; one for each daemon, during its whole run."""

    def check(self, plan: Plan, round_queries: Sequence[RoundQuery]) -> Verdict:
        """Return the verdict, from the plan and the settings alone, that every query of the plan can be
        answered."""

    def load(self, plan: Plan, require: Require = always) -> LoadedRecords:
        """Return the records of a study. `require` is called until they are loaded, and raises an error once
        they may not be: it is raised, and nothing of them is kept. Else raises as the reader of records."""

    def forget(self, plans: Collection[str]) -> None:
        """Drop what is kept of records for later studies, if any of these studies used it."""

    def tidy(self, withdrawn: Callable[[Collection[str]], Collection[str]]) -> None:
        """Drop what is kept for too long, or was used by a study that is `withdrawn` of given ones."""


ReadRecords = Callable[[Study, RowSink], RecordsSummary]


class LocalEngine:
    """Engine that stores records in memory, and in `scratch` beyond the memory limit of `settings`.

    `read` reads a study's records; `max_records` is the site's maximum_records. `kept` are the grids that it
    keeps for later studies, if it does; `progress` is where it states how far a load is."""

    def __init__(
        self,
        read: ReadRecords,
        settings: EngineConfig,
        scratch: Scratch,
        max_records: int,
        kept: KeptGrids | None = None,
        progress: LoadProgress | None = None,
    ) -> None:
        self._kept, self._progress = kept, progress
        self._read = read
        self._kind = settings.kind
        self._memory_bytes = MIB * settings.memory_mib
        self._memory_limit_mib = settings.memory_limit_mib
        self._scratch = scratch
        self._max_records = max_records
        self._needs_all_rows: dict[str, bool] = {}  # of the last plans: True if it needs all rows at once

    def check(self, plan: Plan, round_queries: Sequence[RoundQuery]) -> Verdict:
        """See `RecordEngine.check`. Queries on all records at once are answered from memory only.

        The check uses the site's maximum number of records, not the actual one."""
        self._note_needs(plan, round_queries)
        return memory_verdict(
            plan, round_queries, maximum_records=self._max_records, memory_mib=self._memory_limit_mib
        )

    def _note_needs(self, plan: Plan, round_queries: Sequence[RoundQuery]) -> bool:
        """Return True if a query needs all rows at once; it is remembered of the last plans."""
        self._needs_all_rows[plan.digest] = found = _any_needs_all_rows(round_queries)
        for oldest in list(self._needs_all_rows)[:-REMEMBERED_PLANS]:
            self._needs_all_rows.pop(oldest, None)
        return found

    def load(self, plan: Plan, require: Require = always) -> LocalRecords:
        """See `RecordEngine.load`."""
        require()
        study, kept = grid_study(plan.study), self._kept
        if kept is not None and (found := kept.find(study, plan.digest)) is not None:
            with suppress(BadRecords):
                return LocalRecords(self._rows_of(found, plan), plan.study, found.summary, found.digest)
            self.forget([plan.digest])  # the file is damaged
        before = () if kept is None else kept.stamp()
        sink = GridSink(study, self._scratch, self._memory_limit(plan))
        try:
            counted = self._read_counted(study, plan.digest, _required(sink, require))
            rows, digest = sink.rows(), hashlib.sha256(counted.file + sink.digest()).digest()
            if kept is not None:
                kept.add(study, plan.digest, rows, counted, digest, before, require)
        except Exception:
            sink.close()
            raise
        return LocalRecords(rows, plan.study, counted, digest)

    def _read_counted(self, study: Study, plan: str, sink: RowSink) -> RecordsSummary:
        if self._progress is None:
            return self._read(study, sink)
        with self._progress.counted(plan, sink) as counting:
            return self._read(study, counting)

    def _rows_of(self, found: KeptGrid, plan: Plan) -> StoredRows:
        """Return kept rows, where the rows of a study are stored. Raises BadRecords: they are damaged."""
        stored = GridFile(found.rows, plan.study.dimension, stored_dtype(plan.study))
        if found.rows.size > self._memory_limit(plan):
            return stored
        with closing(stored):
            rows: GridRows = np.empty(stored.shape, dtype=stored.dtype)
            found.rows.read_into(0, rows.data.cast("B"))
        rows.setflags(write=False)
        return rows

    def forget(self, plans: Collection[str]) -> None:
        """See `RecordEngine.forget`."""
        if self._kept is not None:
            self._kept.forget(plans)

    def tidy(self, withdrawn: Callable[[Collection[str]], Collection[str]]) -> None:
        """See `RecordEngine.tidy`."""
        if self._kept is not None:
            self._kept.drop_old()
            if plans := self._kept.plans:
                self._kept.forget(withdrawn(plans))

    def _memory_limit(self, plan: Plan) -> float:
        """Return the bytes of a study's rows to store in memory; no limit if it needs all rows at once."""
        needs_all = self._needs_all_rows.get(plan.digest)
        if needs_all is None:  # accepted long ago, or before this start
            queries = [one for course in possible_rehearsals(plan) for one in course]
            needs_all = self._note_needs(plan, queries)
        if self._kind is EngineKind.MEMORY or needs_all:
            return math.inf
        return 0 if self._kind is EngineKind.DISK else self._memory_bytes


def _required(sink: RowSink, require: Require) -> RowSink:
    """Return a sink that passes rows to `sink` while `require` raises nothing."""

    def passed(rows: GridRows) -> None:
        require()
        sink(rows)

    return passed


def _any_needs_all_rows(round_queries: Sequence[RoundQuery]) -> bool:
    return any(needs_all_rows(one.query) for one in round_queries)


class LocalRecords:
    """See `LoadedRecords`. Each thread answers a part of the rows."""

    def __init__(self, rows: StoredRows, study: Study, counted: RecordsSummary, file: bytes) -> None:
        self.persons = counted.persons
        self.file = file
        self.quality: tuple[ColumnQuality, ...] = counted.quality
        self.lines, self.lost, self.version = counted.lines, counted.lost, counted.version
        self._rows = rows
        self._threads = ThreadPoolExecutor(CORES)
        self._site = Site(rows, unit=unit(study), workers=CORES)

    def is_quick(self, kind: type[Query], numbers: int) -> bool:
        records, columns = self._rows.shape
        products = max(columns, numbers) if issubclass(kind, LINEAR) else columns**2
        return records * products <= QUICK_PRODUCTS

    def answer(self, query: Query, frame: Frame | None) -> IntArray:
        with single_blas_thread():  # one thread for each share of the rows is enough
            return self._site.answer(query, self._threads.map, frame=frame)

    def close(self) -> None:
        self._threads.shutdown()
        if isinstance(self._rows, GridFile):
            self._rows.close()


def zeros(records: int, study: Study) -> LocalRecords:
    """Return records of zeros, so that a refusal takes as long as an answer."""
    rows = np.zeros((records, study.dimension), dtype=stored_dtype(study))
    return LocalRecords(rows, study, RecordsSummary(persons=records, file=b"", quality=()), b"")


def make_engine(config: SiteConfig, progress: LoadProgress | None = None) -> RecordEngine:
    """Return the engine for the records of this site's studies. A daemon states in `progress` how far its
    loads are. Raises as `site_dictionary`."""
    if config.engine.kind is EngineKind.DASK:
        return DaskEngine(config.records, config.column, plausible_ranges(config), config.engine.cluster)
    most, read = config.policy.maximum_records, record_reader(config)
    return LocalEngine(read, config.engine, config.scratch, most, kept_grids(config), progress)


def kept_grids(config: SiteConfig) -> KeptGrids | None:
    """Return an empty store of grids, if this site keeps them. The digest of a SELECT takes as long as its
    records, so none of it is kept."""
    engine, records = config.engine, config.records
    if engine.keep_hours == 0 or not records.is_files:
        return None

    def digest() -> bytes:
        return records_digest(records, reader.digest(records, engine.reading), config.column)

    most, seconds = MIB * engine.keep_mib, HOUR_SECONDS * engine.keep_hours
    return KeptGrids(config.scratch, most, seconds, records.files, digest)
