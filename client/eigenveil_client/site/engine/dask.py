"""A study's records on the workers of a Dask cluster: answers are sums of integers, so bit-identical to those
of one machine, wherever a partition lies and however often it had to be loaded again.
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
from eigenveil_client.connection.cluster import Cluster, ClusterAddress, unreachable
from eigenveil_client.records.apart import reader
from eigenveil_client.records.quality import ColumnQuality, Ranges
from eigenveil_client.records.records import Rules
from eigenveil_client.records.tables.config import RecordsConfig
from eigenveil_client.site.engine import partitions
from eigenveil_client.site.engine.partitions import Problem, Share, Summary
from eigenveil_common.log import event

if TYPE_CHECKING:
    from distributed import Future

FAN = 8  # answers that are added up by one task


class DaskEngine:
    """Loads studies onto the cluster at `address`, to which it connects when there is something to do."""

    def __init__(self, said: RecordsConfig, rules: Rules, plausible: Ranges, address: ClusterAddress) -> None:
        self._said = said
        self._rules = rules
        self._plausible = plausible
        self._address = address
        self._connected: Cluster | None = None
        self._warned: frozenset[str] = frozenset()

    def check(self, plan: Plan, asked: Sequence[RoundQuery]) -> None:
        """See `Engine.check`: an answer has to be a sum over partitions."""
        _check_sums(one.query for one in asked)

    def load(self, plan: Plan) -> DaskRecords:
        """See `Engine.load`; whatever is wrong is told once all partitions were loaded.

        Raises:
            PeerError: code `unreachable`: nothing about the records, and worth another try.
        """
        share = Share(said=self._said, study=plan.study, rules=self._rules, plausible=dict(self._plausible))
        held = DaskRecords(self._cluster(), partitions.shares(share, reader.files(self._said)), plan.digest)
        strange = held.unreadable - self._warned
        if strange:
            event("cells-unreadable", logging.WARNING, columns=", ".join(sorted(strange)))
            self._warned |= strange
        return held

    def _cluster(self) -> Cluster:
        if self._connected is not None and not self._connected.alive:
            self._connected.close()
            self._connected = None
        if self._connected is None:
            self._connected = Cluster(self._address)
            event("cluster-connected", address=self._address.scheduler)
        if not self._connected.workers().workers:
            raise unreachable("it has no worker")
        return self._connected


class DaskRecords:
    """See `Held`. A partition whose worker is gone is loaded again by another, and must be what it was."""

    def __init__(self, cluster: Cluster, shares: Sequence[Share], study: str) -> None:
        self._cluster = cluster
        self._study = study
        self._partitions = [cluster.submit(partitions.load, one) for one in shares]
        summaries = [cluster.submit(partitions.summary, one) for one in self._partitions]
        found = self._results(summaries, summaries, "records-loading")
        parts: list[Summary] = [_or_raise(one) for one in found]
        self._digests = [one.digest for one in parts]
        self.records = sum(one.records for one in parts)
        self.persons = sum(one.persons for one in parts)
        self.file = hashlib.sha256(b"".join(self._digests)).digest()
        self.quality = _together(parts)
        self.unreadable = frozenset[str]().union(*(one.unreadable for one in parts))

    def answer(self, query: Query, frame: Frame | None) -> IntArray:
        """See `Held.answer`.

        Raises:
            RequestError: code `site-policy`: no sum answers it; the study was agreed to under another engine.
            PeerError: code `unreachable`: its scheduler is gone, or stuck.
        """
        _check_sums([query])
        asked = self._cluster.submit(partitions.same, (query, frame))
        answers = [
            self._cluster.submit(partitions.answer, one, digest, asked)
            for one, digest in zip(self._partitions, self._digests, strict=True)
        ]
        totals = answers
        while len(totals) > 1:
            some = (totals[first : first + FAN] for first in range(0, len(totals), FAN))
            totals = [self._cluster.submit(partitions.add, one) for one in some]
        return frozen(_or_raise(self._results(totals, answers, "round-computing")[0]))

    def close(self) -> None:
        self._partitions = []  # of which nobody knows any more, so the workers forget them

    def _results(self, wanted: Sequence[Future[Any]], among: Sequence[Future[Any]], doing: str) -> list[Any]:
        def tell(done: int, of: int) -> None:
            event(doing, study=self._study, detail=f"{done} of {of} partitions")

        return self._cluster.results(wanted, among, tell)


def _check_sums(queries: Iterable[Query]) -> None:
    """Insist that an answer is a sum over partitions: of a record in a secret order, each would send one."""
    whole = sorted({NAMES[type(query)] for query in queries if needs_all_rows(query)})
    if whole:
        raise RequestError(
            Code.POLICY,
            f"the study asks for {', '.join(whole)}, for which all records must lie in one place; the site's "
            "engine holds them on several machines and can only add up",
        )


def _or_raise(found: Any) -> Any:
    if isinstance(found, Problem):
        if (
            found.code is Code.STORAGE
        ):  # of a worker's disk, which another may have; here it would end the daemon
            raise unreachable(found.message)
        raise found.error()
    return found


def _together(parts: Sequence[Summary]) -> tuple[ColumnQuality, ...]:
    return tuple(reduce(add, of_one) for of_one in zip(*(one.quality for one in parts), strict=True))
