"""Engines that store the records of running studies: in memory, in a file beside the state, on a cluster."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from eigenveil.study.grid import stored_dtype, unit
from eigenveil.study.study import Study
from eigenveil_client.records.column_quality import ColumnQuality
from eigenveil_client.records.scratch_files import GridFile, GridSink, Scratch
from eigenveil_client.records.summary import RecordsSummary, RowSink
from eigenveil_client.site.config import (
    EngineConfig,
    EngineKind,
    SiteConfig,
    plausible_ranges,
    record_reader,
)
from eigenveil_client.site.engine.dask import DaskEngine
from eigenveil_common.concurrency import CORES

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

    def load(self, plan: Plan) -> LoadedRecords:
        """Return the records of a study. Raises as the reader of records."""


ReadRecords = Callable[[Study, RowSink], RecordsSummary]


class LocalEngine:
    """Engine that stores records in memory, and in `scratch` beyond the memory limit of `settings`.

    `read` reads a study's records; `max_records` is the site's maximum_records."""

    def __init__(self, read: ReadRecords, settings: EngineConfig, scratch: Scratch, max_records: int) -> None:
        self._read = read
        self._kind = settings.kind
        self._memory_bytes = MIB * settings.memory_mib
        self._memory_limit_mib = settings.memory_limit_mib
        self._scratch = scratch
        self._max_records = max_records
        self._needs_all_rows: dict[str, bool] = {}  # by plan: True if it needs all rows at once

    def check(self, plan: Plan, round_queries: Sequence[RoundQuery]) -> Verdict:
        """See `RecordEngine.check`. Queries on all records at once are answered from memory only.

        The check uses the site's maximum number of records, not the actual one."""
        self._needs_all_rows[plan.digest] = _any_needs_all_rows(round_queries)
        return memory_verdict(
            plan, round_queries, maximum_records=self._max_records, memory_mib=self._memory_limit_mib
        )

    def load(self, plan: Plan) -> LocalRecords:
        """See `RecordEngine.load`."""
        sink = GridSink(plan.study, self._scratch, self._memory_limit(plan))
        try:
            counted = self._read(plan.study, sink)
            rows = sink.rows()
        except Exception:
            sink.close()
            raise
        return LocalRecords(rows, plan.study, counted, hashlib.sha256(counted.file + sink.digest()).digest())

    def _memory_limit(self, plan: Plan) -> float:
        """Return the bytes of a study's rows to store in memory; no limit if it needs all rows at once."""
        if plan.digest not in self._needs_all_rows:  # accepted before this start
            queries = [one for course in possible_rehearsals(plan) for one in course]
            self._needs_all_rows[plan.digest] = _any_needs_all_rows(queries)
        if self._kind is EngineKind.MEMORY or self._needs_all_rows[plan.digest]:
            return math.inf
        return 0 if self._kind is EngineKind.DISK else self._memory_bytes


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


def make_engine(config: SiteConfig) -> RecordEngine:
    """Return the engine for the records of this site's studies. Raises as `site_dictionary`."""
    if config.engine.kind is EngineKind.DASK:
        return DaskEngine(config.records, config.column, plausible_ranges(config), config.engine.cluster)
    return LocalEngine(record_reader(config), config.engine, config.scratch, config.policy.maximum_records)
