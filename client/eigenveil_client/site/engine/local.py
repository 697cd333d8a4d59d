"""Records held by the daemon itself: in its memory, or in a file in the folder of the site's state."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import IntArray
from eigenveil.planning.dry_run import courses
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import Frame, Query, needs_all_rows
from eigenveil.site.site import Site
from eigenveil.site.stored import StoredRows
from eigenveil.study.grid import record_bytes, stored_dtype, unit
from eigenveil.study.study import Study
from eigenveil_client.records.overflow.grid_file import GridFile, GridSink
from eigenveil_client.records.overflow.scratch import Scratch
from eigenveil_client.records.quality import ColumnQuality
from eigenveil_client.records.records import Counted, Keep
from eigenveil_client.site.engine_config import EngineConfig, Kind
from eigenveil_common.threads import CORES

Read = Callable[[Study, Keep], Counted]
MIB = 2**20


class LocalEngine:
    """`read` goes over a study's records; rows beyond the memory that the settings allow lie in `scratch`.
    `most` is what the site states never to have more records than."""

    def __init__(self, read: Read, settings: EngineConfig, scratch: Scratch, most: int) -> None:
        self._read = read
        self._settings = settings
        self._scratch = scratch
        self._most = most
        self._whole: dict[str, bool] = {}  # of each plan: whether it needs all rows at once

    def check(self, plan: Plan, asked: Sequence[RoundQuery]) -> None:
        """See `Engine.check`. What needs all records at once is answered from memory alone: of the most
        that there may be, not of those that there are."""
        size = self._most * record_bytes(plan.study)
        self._whole[plan.digest] = _needs_all(asked)
        if self._settings.kind is Kind.MEMORY or size <= self._allowed or not self._whole[plan.digest]:
            return
        raise RequestError(
            Code.POLICY,
            "the study deals the records into parts or pairs them, for which a site holds all of them in "
            f"memory: {self._most} records (maximum_records) of {plan.study.dimension} columns take "
            f"{math.ceil(size / MIB)} MiB, and site.toml allows {self._settings.memory_mib} (memory_mib)",
        )

    def load(self, plan: Plan) -> LocalRecords:
        """See `Engine.load`."""
        sink = GridSink(plan.study, self._scratch, self._limit(plan))
        try:
            counted = self._read(plan.study, sink)
            rows = sink.rows()
        except Exception:
            sink.close()
            raise
        return LocalRecords(rows, plan.study, counted, hashlib.sha256(counted.file + sink.digest()).digest())

    @property
    def _allowed(self) -> int:
        return MIB * self._settings.memory_mib

    def _limit(self, plan: Plan) -> float:
        """How many bytes of a study's rows are held in memory; all, where it asks for all rows at once."""
        kind = self._settings.kind
        if plan.digest not in self._whole:  # agreed to before this start
            self._whole[plan.digest] = _needs_all([one for course in courses(plan) for one in course])
        if kind is Kind.MEMORY or self._whole[plan.digest]:
            return math.inf
        return 0 if kind is Kind.DISK else self._allowed


def _needs_all(asked: Sequence[RoundQuery]) -> bool:
    return any(needs_all_rows(one.query) for one in asked)


class LocalRecords:
    """See `Held`. Answers in pieces, one for each of its threads."""

    def __init__(self, rows: StoredRows, study: Study, counted: Counted, file: bytes) -> None:
        self.records = len(rows)
        self.persons = counted.persons
        self.file = file
        self.quality: tuple[ColumnQuality, ...] = counted.quality
        self._rows = rows
        self._threads = ThreadPoolExecutor(CORES)
        self._site = Site(rows, unit=unit(study), workers=CORES)

    def answer(self, query: Query, frame: Frame | None) -> IntArray:
        with one_thread():  # its shares of the rows are the threads; more inside them only get in the way
            return self._site.answer(query, self._threads.map, frame=frame)

    def close(self) -> None:
        self._threads.shutdown()
        if isinstance(self._rows, GridFile):
            self._rows.close()


def zeros(records: int, study: Study) -> LocalRecords:
    """Records that tell nothing, for the time that an answer takes."""
    rows = np.zeros((records, study.dimension), dtype=stored_dtype(study))
    return LocalRecords(rows, study, Counted(persons=records, file=b"", quality=()), b"")
