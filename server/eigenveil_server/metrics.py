"""What operators watch: the budget, studies, rounds, refusals, certificates. Nothing about records or their
number: a round's time is the only figure that depends on them, in coarse buckets.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from cryptography import x509
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from eigenveil.errors import Code, EigenveilError
from eigenveil_common.files import read
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_server.clock import unix_ms
from eigenveil_server.config import Config
from eigenveil_server.metrics_listener import MetricsListener
from eigenveil_server.storage.database import Store
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.submissions import submitted

BUCKETS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 3600.0, 86400.0)
DELAYS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
DAY = 86400.0


class Metrics:
    """The counters of one process; `registry` is what is scraped."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._refused = Counter(
            "eigenveil_refused_calls", "Calls that ended with an error.", ["code"], registry=self.registry
        )
        self._pages = Counter(
            "eigenveil_console_requests", "Requests of the console, by what was answered.", ["status"],
            registry=self.registry,
        )  # fmt: skip
        self._unvisited = Counter(
            "eigenveil_console_refusals",
            "Requests of the console that nobody was let in with: identity, role, session or quota.",
            ["why"], registry=self.registry,
        )  # fmt: skip
        Gauge(
            "eigenveil_console_watchers", "Pages of the console that are open and live.",
            registry=self.registry,
        ).set_function(lambda: self.watchers())  # fmt: skip
        self.watchers: Callable[[], int] = lambda: 0
        self._closed = Counter(
            "eigenveil_closed_connections",
            "Connections that the coordinator ended: why, and whose (nobody's if it showed no certificate).",
            ["why", "peer"], registry=self.registry,
        )  # fmt: skip
        self._rounds = Counter("eigenveil_rounds", "Rounds that ended.", ["outcome"], registry=self.registry)
        self._seconds = Histogram(
            "eigenveil_round_seconds", "From a round's question to its release.",
            buckets=BUCKETS, registry=self.registry,
        )  # fmt: skip
        self._attempts = Counter(
            "eigenveil_attempts", "Attempts at masked rounds whose set of sites was told to it.",
            registry=self.registry,
        )  # fmt: skip
        self._delays = Histogram(
            "eigenveil_event_loop_delay_seconds", "By how much turns of the event loop began too late.",
            buckets=DELAYS, registry=self.registry,
        )  # fmt: skip
        self._notices = Counter(
            "eigenveil_notices", "Mails and webhook calls to people.", ["outcome"], registry=self.registry
        )
        self._polls: Tally[str] = Tally()
        Gauge(
            "eigenveil_sites_connected", "Sites that wait for work at this moment.", registry=self.registry
        ).set_function(lambda: len(self._polls))
        for outcome in ("released", "failed"):
            self._rounds.labels(outcome)

    def notified(self, outcome: str) -> None:
        """A mail or a webhook call ended so: sent, failed, or dropped for want of room."""
        self._notices.labels(outcome).inc()

    def late(self, seconds: float) -> None:
        """A turn of the event loop began so much too late."""
        self._delays.observe(seconds)

    def refused(self, code: Code) -> None:
        self._refused.labels(code.value).inc()

    def page(self, status: int) -> None:
        """The console has answered."""
        self._pages.labels(str(status)).inc()

    def page_refused(self, why: str) -> None:
        """The console has refused a request."""
        self._unvisited.labels(why).inc()

    def refusals(self) -> dict[str, int]:
        """Calls that were refused since the start, by their code."""
        found = {one.labels["code"]: int(one.value) for one in _samples(self._refused)}
        return {code: found[code] for code in sorted(found)}

    def closed(self, why: str, peer: str) -> None:
        """The front door ended a connection of `peer`."""
        self._closed.labels(why, peer).inc()

    def attempted(self) -> None:
        """An attempt at a masked round has begun, or is gone on with."""
        self._attempts.inc()

    @contextmanager
    def round(self) -> Iterator[None]:
        """One round, from its question to its release."""
        began = time.monotonic()
        try:
            yield
        except EigenveilError:
            self._rounds.labels("failed").inc()
            raise
        self._rounds.labels("released").inc()
        self._seconds.observe(time.monotonic() - began)

    @contextmanager
    def polling(self, site: str) -> Iterator[None]:
        self._polls[site] += 1
        try:
            yield
        finally:
            self._polls[site] -= 1
            if not self._polls[site]:
                del self._polls[site]

    def scrapes(self, config: Config, store: Store, ledger: LedgerStore) -> MetricsListener:
        """The listener that answers with all of it."""
        self.registry.register(_Standing(config, store, ledger))
        encode, content_type = choose_encoder("")
        return MetricsListener(lambda: encode(self.registry), content_type)


def _samples(counter: Counter) -> Iterator[Sample]:
    for family in counter.collect():
        yield from (one for one in family.samples if one.name.endswith("_total"))


class _Standing(Collector):
    """What is read when it is asked for: the ledger, the database, the certificates."""

    def __init__(self, config: Config, store: Store, ledger: LedgerStore) -> None:
        self._config = config
        self._store = store
        self._ledger = ledger

    def collect(self) -> Iterator[GaugeMetricFamily]:
        totals = self._ledger.totals
        total, spent = totals.limit.micro_rho, totals.spent.micro_rho
        parts = {"total": total, "spent": spent, "reserved": totals.committed.micro_rho - spent}
        yield _gauge("eigenveil_budget_micro_rho", "The federation's budget.", "part", parts)
        rows = self._store.reader.rows("SELECT state, COUNT(*) AS many FROM studies GROUP BY state")
        found = {state.value: 0 for state in StudyState} | {row["state"]: row["many"] for row in rows}
        yield _gauge("eigenveil_studies", "Studies by state.", "state", found)
        told = submitted(self._store.reader, unix_ms())
        stored = {one.analyst: one.bytes for one in told}
        yield _gauge(
            "eigenveil_submitted_bytes",
            "Bytes of stored studies: plans, signatures, what sites stated.",
            "analyst",
            stored,
        )
        today = {one.analyst: one.studies_today for one in told}
        about = "Studies submitted in the last 24 hours."
        yield _gauge("eigenveil_submitted_today", about, "analyst", today)
        files = {"authority": self._config.files.ca, "coordinator": self._config.files.server}
        left = {name: (_ends(path).timestamp() - time.time()) / DAY for name, path in files.items()}
        yield _gauge("eigenveil_certificate_days_left", "Days until a certificate ends.", "certificate", left)


def _gauge(name: str, about: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, about, labels=[label])
    for part, value in values.items():
        family.add_metric([part], value)
    return family


def _ends(path: Path) -> datetime:
    return min(one.not_valid_after_utc for one in x509.load_pem_x509_certificates(read(path)))
