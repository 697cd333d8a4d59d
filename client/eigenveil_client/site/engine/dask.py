"""Records of a study on the workers of a Dask cluster. Answers are sums of integers, so they equal those of
one machine bit by bit, however often a partition was loaded again. No task raises an error, because a worker
would log it with any value that it quotes."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce, wraps
from operator import add
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from eigenveil.dictionary.site_rules import Verdict
from eigenveil.errors import Code, EigenveilError, RequestError, error
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.numerics.linalg import single_blas_thread
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import NAMES, Frame, Query, needs_all_rows
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows, unit
from eigenveil.study.study import Study
from eigenveil_client.connection.cluster import Cluster, ClusterAddress, unreachable_error
from eigenveil_client.records.column_quality import ColumnQuality, PlausibleRanges
from eigenveil_client.records.isolated import reader
from eigenveil_client.records.recoding.rule import Rules
from eigenveil_client.records.summary import LINES, RecordsSummary
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig
from eigenveil_client.site.engine.kept_grids import Require, always
from eigenveil_common.log import event, frame_locations

if TYPE_CHECKING:
    from distributed import Future

MAX_ADDENDS = 8  # answers that one task adds

Given = ParamSpec("Given")
Done = TypeVar("Done")
FramedQuery = tuple[Query, Frame | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerError:
    """An error as a value, on its way to the site; bad records have `about`, and sometimes `kind`."""

    code: Code
    message: str
    about: str = ""
    kind: str = ""

    def error(self) -> EigenveilError:
        """Return the error to raise at the site."""
        if self.about:
            return BadRecords(self.message, about=self.about, kind=self.kind)
        return error(self.code, self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary(RecordsSummary):
    """Description of a partition for the site, without its rows. `file` is the digest of the file and the
    rows, `unreadable` are the columns with unreadable cells."""

    unreadable: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partition:
    """A loaded share on a worker."""

    rows: GridRows
    unit: int
    summary: PartitionSummary


def _errors_as_values(work: Callable[Given, Done]) -> Callable[Given, Done | WorkerError]:
    @wraps(work)
    def done(*arguments: Given.args, **keywords: Given.kwargs) -> Done | WorkerError:
        for one in arguments:
            for found in one if isinstance(one, list) else (one,):
                if isinstance(found, WorkerError):
                    return found  # of the task before
        try:
            return work(*arguments, **keywords)
        except EigenveilError as problem:
            about, kind = getattr(problem, "about", ""), getattr(problem, "kind", "")
            return WorkerError(code=problem.code, message=str(problem), about=about, kind=kind)
        except Exception as unexpected:  # noqa: BLE001 - the site logs it, without its text
            at = frame_locations(unexpected.__traceback__)
            return WorkerError(code=Code.BUG, message=f"{type(unexpected).__qualname__} at {at}")

    return done


@_errors_as_values
def load(source: RecordsConfig, study: Study, rules: Rules, plausible: PlausibleRanges) -> Partition:
    """Return the records of a file, by the same code and rules as on one machine [P30]."""
    found: set[str] = set()
    records = reader.Reader(source, rules, plausible).read(study, lambda column: found.add(column or LINES))
    digest = hashlib.sha256(records.file)
    digest.update(np.ascontiguousarray(records.rows).data)
    described = PartitionSummary(
        persons=records.persons, file=digest.digest(), quality=records.quality, unreadable=frozenset(found),
        lines=records.lines, lost=records.lost, version=records.version,
    )  # fmt: skip
    return Partition(rows=records.rows, unit=unit(study), summary=described)


@_errors_as_values
def summary(partition: Partition) -> PartitionSummary:
    return partition.summary


@_errors_as_values
def answer(partition: Partition, digest: bytes, framed_query: FramedQuery) -> IntArray:
    """Return the exact sum over a partition, if its digest is equal: another worker may have reloaded it.

    Privacy: none by itself, as `Site.answer`; it is added to the others' and goes nowhere else."""
    if partition.summary.file != digest:
        raise BadRecords(
            "the records have changed since this study began; restore them, or start a new study",
            about="changed",
        )
    query, frame = framed_query
    with single_blas_thread():  # the worker's tasks are the threads
        return Site(partition.rows, unit=partition.unit).answer(query, frame=frame)


@_errors_as_values
def total(answers: list[IntArray]) -> IntArray:
    """Return the exact sum, which is independent of the order [P1]."""
    return sum(answers[1:], answers[0])


def forward(framed_query: FramedQuery) -> FramedQuery:
    """Return the query: one task sends it to all workers, and is repeated if its worker is lost."""
    return framed_query


@dataclass(eq=False)
class DaskEngine:
    """Engine that loads studies onto the cluster at `address`, and connects when it is needed."""

    _records_config: RecordsConfig
    _rules: Rules
    _plausible: PlausibleRanges
    _address: ClusterAddress
    _connected: Cluster | None = field(default=None, init=False)
    _warned: frozenset[str] = field(default=frozenset(), init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)  # loads run in two threads

    def check(self, plan: Plan, round_queries: Sequence[RoundQuery]) -> Verdict:
        """See `RecordEngine.check`: each answer must be a sum over partitions."""
        problem = _not_sums(one.query for one in round_queries)
        text = problem or "every answer is a sum over the machines"
        return Verdict(rule="engine", passed=not problem, text=text)

    def load(self, plan: Plan, require: Require = always) -> DaskRecords:
        """See `RecordEngine.load`; errors are raised after all partitions were loaded. Raises PeerError: code
        `unreachable_error`: the records are not the cause; a retry may help."""
        rules, plausible = self._rules, dict(self._plausible)
        cluster, config = self._cluster(), self._records_config
        sources = [replace(config, source=file) for file in reader.files(config)]
        partitions = [cluster.submit(load, one, plan.study, rules, plausible) for one in sources]
        records = DaskRecords(cluster, partitions, plan.digest, require)
        with self._lock:
            new_columns, self._warned = records.unreadable - self._warned, records.unreadable | self._warned
        if new_columns:
            event("cells-unreadable", logging.WARNING, columns=", ".join(sorted(new_columns)))
        return records

    def forget(self, plans: Collection[str]) -> None:
        """Nothing is kept for later studies."""

    def tidy(self, withdrawn: Callable[[Collection[str]], Collection[str]]) -> None:
        """Nothing is kept for later studies."""

    def _cluster(self) -> Cluster:
        with self._lock:
            if self._connected is not None and not self._connected.alive:
                self._connected.close()
                self._connected = None
            if self._connected is None:
                self._connected = Cluster(self._address)
                event("cluster-connected", address=self._address.scheduler)
            connected = self._connected
        if not connected.workers().workers:
            raise unreachable_error("it has no worker")
        connected.check_versions()
        return connected


class DaskRecords:
    """See `LoadedRecords`. Another worker reloads the partition of a lost one; its digest must be equal."""

    def __init__(
        self, cluster: Cluster, partitions: Sequence[Future[Any]], study: str, require: Require = always
    ) -> None:
        require()
        self._cluster = cluster
        self._study = study
        self._partitions = partitions
        summaries = [cluster.submit(summary, one) for one in self._partitions]
        found = self._results(summaries, summaries, "records-loading", require)
        summaries_found: list[PartitionSummary] = [_raise_worker_error(one) for one in found]
        self._digests = [one.file for one in summaries_found]
        self.persons = sum(one.persons for one in summaries_found)
        # none is lost: every row of a Parquet file has all cells, and no column names a person here
        self.lines = sum(one.lines for one in summaries_found)
        self.lost = sum(one.lost for one in summaries_found)
        self.version = hashlib.sha256(b"".join(one.version for one in summaries_found)).digest()
        self.file = hashlib.sha256(b"".join(self._digests)).digest()
        columns = zip(*(one.quality for one in summaries_found), strict=True)
        self.quality: tuple[ColumnQuality, ...] = tuple(reduce(add, of_one) for of_one in columns)
        self.unreadable = frozenset[str]().union(*(one.unreadable for one in summaries_found))

    def is_quick(self, kind: type[Query], numbers: int) -> bool:
        return False

    def answer(self, query: Query, frame: Frame | None) -> IntArray:
        """See `LoadedRecords.answer`.

        Raises:
            RequestError: code `site-policy`: the answer is no sum; another engine accepted the study.
            PeerError: code `unreachable_error`: the scheduler is lost or stuck."""
        if problem := _not_sums([query]):
            raise RequestError(Code.POLICY, problem)
        framed_query = self._cluster.submit(forward, (query, frame))
        answers = [
            self._cluster.submit(answer, one, digest, framed_query)
            for one, digest in zip(self._partitions, self._digests, strict=True)
        ]
        totals = answers
        while len(totals) > 1:
            batches = (totals[first : first + MAX_ADDENDS] for first in range(0, len(totals), MAX_ADDENDS))
            totals = [self._cluster.submit(total, one) for one in batches]
        return frozen(_raise_worker_error(self._results(totals, answers, "round-computing")[0]))

    def close(self) -> None:
        self._partitions = []  # the last references: the workers release them

    def _results(
        self,
        wanted: Sequence[Future[Any]],
        among: Sequence[Future[Any]],
        event_name: str,
        require: Require = always,
    ) -> list[Any]:
        def report(done: int, of: int) -> None:
            require()
            event(event_name, study=self._study, detail=f"{done} of {of} partitions")

        return self._cluster.results(wanted, among, report)


def _not_sums(queries: Iterable[Query]) -> str:
    """Return why an answer is no sum over partitions, as a secret order needs all records in one place; empty
    if each is one."""
    unsupported = sorted({NAMES[type(query)] for query in queries if needs_all_rows(query)})
    if not unsupported:
        return ""
    return (
        f"the study has queries of kind {', '.join(unsupported)}, which need all records in one place, "
        "but the site's engine (dask) stores them on several machines"
    )


def _raise_worker_error(found: Any) -> Any:
    if isinstance(found, WorkerError):
        if found.code is Code.STORAGE:  # a worker's disk failed; the code `storage` would end this daemon
            raise unreachable_error(found.message)
        raise found.error()
    return found
