"""Records of a study on the workers of a Dask cluster.

Answers are sums of integers, so they equal those of one machine bit by bit, wherever a partition is stored
and however often it was loaded again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import NAMES, Frame, Query, needs_all_rows
from eigenveil_client.connection.cluster import Cluster, ClusterAddress, unreachable_error
from eigenveil_client.records.column_quality import ColumnQuality, PlausibleRanges
from eigenveil_client.records.isolated import reader
from eigenveil_client.records.records import Rules
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.engine import partitions
from eigenveil_client.site.engine.partitions import PartitionSource, PartitionSummary, WorkerError
from eigenveil_common.log import event

if TYPE_CHECKING:
    from distributed import Future

MAX_ADDENDS = 8  # answers that one task adds


class DaskEngine:
    """Engine that loads studies onto the cluster at `address`, and connects when it is needed."""

    def __init__(
        self, records_config: RecordsConfig, rules: Rules, plausible: PlausibleRanges, address: ClusterAddress
    ) -> None:
        self._records_config = records_config
        self._rules = rules
        self._plausible = plausible
        self._address = address
        self._connected: Cluster | None = None
        self._warned: frozenset[str] = frozenset()

    def check(self, plan: Plan, round_queries: Sequence[RoundQuery]) -> None:
        """See `RecordEngine.check`: each answer must be a sum over partitions."""
        _check_sums(one.query for one in round_queries)

    def load(self, plan: Plan) -> DaskRecords:
        """See `RecordEngine.load`; errors are raised after all partitions were loaded.

        Raises:
            PeerError: code `unreachable_error`: the records are not the cause; a retry may help.
        """
        share = PartitionSource(
            records_config=self._records_config,
            study=plan.study,
            rules=self._rules,
            plausible=dict(self._plausible),
        )
        records = DaskRecords(
            self._cluster(), partitions.shares(share, reader.files(self._records_config)), plan.digest
        )
        new_columns = records.unreadable - self._warned
        if new_columns:
            event("cells-unreadable", logging.WARNING, columns=", ".join(sorted(new_columns)))
            self._warned |= new_columns
        return records

    def _cluster(self) -> Cluster:
        if self._connected is not None and not self._connected.alive:
            self._connected.close()
            self._connected = None
        if self._connected is None:
            self._connected = Cluster(self._address)
            event("cluster-connected", address=self._address.scheduler)
        if not self._connected.workers().workers:
            raise unreachable_error("it has no worker")
        return self._connected


class DaskRecords:
    """See `LoadedRecords`. Another worker reloads the partition of a lost one; its digest must be equal."""

    def __init__(self, cluster: Cluster, shares: Sequence[PartitionSource], study: str) -> None:
        self._cluster = cluster
        self._study = study
        self._partitions = [cluster.submit(partitions.load, one) for one in shares]
        summaries = [cluster.submit(partitions.summary, one) for one in self._partitions]
        found = self._results(summaries, summaries, "records-loading")
        summaries_found: list[PartitionSummary] = [_raise_worker_error(one) for one in found]
        self._digests = [one.digest for one in summaries_found]
        self.records = sum(one.records for one in summaries_found)
        self.persons = sum(one.persons for one in summaries_found)
        self.file = hashlib.sha256(b"".join(self._digests)).digest()
        self.quality = _merge_quality(summaries_found)
        self.unreadable = frozenset[str]().union(*(one.unreadable for one in summaries_found))

    def answer(self, query: Query, frame: Frame | None) -> IntArray:
        """See `LoadedRecords.answer`.

        Raises:
            RequestError: code `site-policy`: the answer is no sum; another engine accepted the study.
            PeerError: code `unreachable_error`: the scheduler is lost or stuck.
        """
        _check_sums([query])
        framed_query = self._cluster.submit(partitions.forward, (query, frame))
        answers = [
            self._cluster.submit(partitions.answer, one, digest, framed_query)
            for one, digest in zip(self._partitions, self._digests, strict=True)
        ]
        totals = answers
        while len(totals) > 1:
            batches = (totals[first : first + MAX_ADDENDS] for first in range(0, len(totals), MAX_ADDENDS))
            totals = [self._cluster.submit(partitions.add, one) for one in batches]
        return frozen(_raise_worker_error(self._results(totals, answers, "round-computing")[0]))

    def close(self) -> None:
        self._partitions = []  # the last references: the workers release them

    def _results(
        self, wanted: Sequence[Future[Any]], among: Sequence[Future[Any]], event_name: str
    ) -> list[Any]:
        def report(done: int, of: int) -> None:
            event(event_name, study=self._study, detail=f"{done} of {of} partitions")

        return self._cluster.results(wanted, among, report)


def _check_sums(queries: Iterable[Query]) -> None:
    """Require that each answer is a sum over partitions: a secret order needs all records in one place."""
    unsupported = sorted({NAMES[type(query)] for query in queries if needs_all_rows(query)})
    if unsupported:
        raise RequestError(
            Code.POLICY,
            f"the study has queries of kind {', '.join(unsupported)}, which need all records in one place, "
            "but the site's engine (dask) stores them on several machines",
        )


def _raise_worker_error(found: Any) -> Any:
    if isinstance(found, WorkerError):
        if found.code is Code.STORAGE:  # a worker's disk failed; the code `storage` would end this daemon
            raise unreachable_error(found.message)
        raise found.error()
    return found


def _merge_quality(summaries_found: Sequence[PartitionSummary]) -> tuple[ColumnQuality, ...]:
    return tuple(
        reduce(add, of_one) for of_one in zip(*(one.quality for one in summaries_found), strict=True)
    )
