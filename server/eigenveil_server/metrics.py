"""Prometheus metrics for operators: budget, studies, rounds, refusals, certificates, event loop delay. No
metric reveals records or their number. Only the duration of a round depends on them, in coarse buckets. The
listener is plain HTTP: one answer for each connection, few at a time, with a timeout."""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from cryptography import x509
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil_common.files import read
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_server.config import Config
from eigenveil_server.process import unix_ms
from eigenveil_server.storage.database import Store
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.submissions import analyst_usage

MOST_AT_ONCE = 16
REQUEST_SECONDS = 5.0  # for a request to arrive, and for its answer to be read
MOST_BYTES = 8 * 1024  # of a request
SERVED_PATHS = ("GET / ", "GET /metrics ", "GET /metrics?")


class MetricsListener:
    """HTTP listener that serves the text of `render`, which runs on a thread. Beyond `MOST_AT_ONCE` the
    oldest connection is closed, so that idle clients cannot block others."""

    def __init__(self, render: Callable[[], bytes], content_type: str) -> None:
        self._render = render
        self._head = f"Content-Type: {content_type}\r\nConnection: close\r\n"
        self._lock = asyncio.Lock()
        self._open: dict[asyncio.StreamWriter, None] = {}  # the oldest first

    async def open(self, host: str, port: int) -> None:
        """Start to listen."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=MOST_BYTES)
        except OSError as problem:
            message = f"cannot listen on {host}:{port} for metrics: {problem.strerror}"
            raise RequestError(Code.BAD_CONFIG, message) from problem

    async def close(self) -> None:
        self._server.close()
        for writer in tuple(self._open):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        if len(self._open) > MOST_AT_ONCE:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        # The client is too slow, sends too much, or has closed: it gets no answer.
        with suppress(TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(request.decode("latin-1")))
                await writer.drain()
        self._open.pop(writer, None)
        writer.close()

    async def _answer(self, request: str) -> bytes:
        if not request.startswith(SERVED_PATHS):
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        async with self._lock:
            body = await asyncio.to_thread(self._render)
        return f"HTTP/1.1 200 OK\r\n{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body


BUCKETS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 3600.0, 86400.0)
DELAYS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
DAY = 86400.0


class Metrics:
    """Metrics of one process; `registry` is scraped."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._refused = Counter(
            "eigenveil_refused_calls", "Calls that ended with an error.", ["code"], registry=self.registry
        )
        self.pages = Counter(
            "eigenveil_console_requests", "Requests of the console, by HTTP status.", ["status"],
            registry=self.registry,
        )  # fmt: skip
        self.console_refusals = Counter(
            "eigenveil_console_refusals",
            "Refused requests of the console, by reason: identity, role, session or quota.",
            ["why"], registry=self.registry,
        )  # fmt: skip
        Gauge(
            "eigenveil_console_watchers", "Open live pages of the console.",
            registry=self.registry,
        ).set_function(lambda: self.watchers())  # fmt: skip
        self.watchers: Callable[[], int] = lambda: 0
        self._closed = Counter(
            "eigenveil_closed_connections",
            "Connections that the coordinator closed, by reason and client (empty without a certificate).",
            ["why", "peer"], registry=self.registry,
        )  # fmt: skip
        self._rounds = Counter("eigenveil_rounds", "Rounds that ended.", ["outcome"], registry=self.registry)
        self._seconds = Histogram(
            "eigenveil_round_seconds", "Time from a round's query to its release.",
            buckets=BUCKETS, registry=self.registry,
        )  # fmt: skip
        self.attempts = Counter(
            "eigenveil_attempts", "Attempts at masked rounds whose sites were fixed.",
            registry=self.registry,
        )  # fmt: skip
        self.event_loop_delays = Histogram(
            "eigenveil_event_loop_delay_seconds", "Delay of passes of the event loop.",
            buckets=DELAYS, registry=self.registry,
        )  # fmt: skip
        self.notices = Counter(
            "eigenveil_notices", "Notifications by mail and webhook.", ["outcome"], registry=self.registry
        )
        self._polls: Tally[str] = Tally()
        Gauge(
            "eigenveil_sites_connected", "Sites that are polling for work.", registry=self.registry
        ).set_function(lambda: len(self._polls))
        for outcome in ("released", "failed"):
            self._rounds.labels(outcome)

    def refused(self, code: Code) -> None:
        self._refused.labels(code.value).inc()

    def refusals(self) -> dict[str, int]:
        """Return the number of refused calls since the start, by code."""
        samples = [one for family in self._refused.collect() for one in family.samples]
        found = {one.labels["code"]: int(one.value) for one in samples if one.name.endswith("_total")}
        return dict(sorted(found.items()))

    def closed(self, why: str, peer: str) -> None:
        """Count a connection of `peer` that the gateway closed."""
        self._closed.labels(why, peer).inc()

    @contextmanager
    def round(self) -> Iterator[None]:
        """Measure one round, from its query to its release."""
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

    def make_listener(self, config: Config, store: Store, ledger: LedgerStore) -> MetricsListener:
        """Return the listener that serves the metrics."""
        self.registry.register(_StateCollector(config, store, ledger))
        encode, content_type = choose_encoder("")
        return MetricsListener(lambda: encode(self.registry), content_type)


@dataclass(eq=False)
class _StateCollector(Collector):
    """Gauges that are read at each scrape: ledger, database, certificates."""

    _config: Config
    _store: Store
    _ledger: LedgerStore

    def collect(self) -> Iterator[GaugeMetricFamily]:
        totals = self._ledger.totals
        total, spent = totals.limit.micro_rho, totals.spent.micro_rho
        parts = {"total": total, "spent": spent, "reserved": totals.committed.micro_rho - spent}
        yield _gauge("eigenveil_budget_micro_rho", "The federation's budget.", "part", parts)
        rows = self._store.reader.rows("SELECT state, COUNT(*) AS many FROM studies GROUP BY state")
        found = {state.value: 0 for state in StudyState} | {row["state"]: row["many"] for row in rows}
        yield _gauge("eigenveil_studies", "Studies by state.", "state", found)
        usage = analyst_usage(self._store.reader, unix_ms())
        about = "Bytes of stored studies: plans, signatures, statements of sites."
        yield _gauge("eigenveil_submitted_bytes", about, "analyst", {one.analyst: one.bytes for one in usage})
        about = "Studies submitted in the last 24 hours."
        today = {one.analyst: one.studies_today for one in usage}
        yield _gauge("eigenveil_submitted_today", about, "analyst", today)
        files = {"authority": self._config.files.ca, "coordinator": self._config.files.server}
        left: dict[str, float] = {}
        for name, path in files.items():
            ends = min(one.not_valid_after_utc for one in x509.load_pem_x509_certificates(read(path)))
            left[name] = (ends.timestamp() - time.time()) / DAY
        yield _gauge("eigenveil_certificate_days_left", "Days until a certificate ends.", "certificate", left)


def _gauge(name: str, about: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, about, labels=[label])
    for part, value in values.items():
        family.add_metric([part], value)
    return family


EVERY_SECONDS = 0.05


@dataclass(eq=False)
class LoopDelay:
    """Pass the delay of each pass of the event loop, which delays every caller, to `observe`."""

    _observe: Callable[[float], None]

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + EVERY_SECONDS
        self._timer = loop.call_at(due, self._measure, due)

    def _measure(self, due: float) -> None:
        self._observe(max(0.0, asyncio.get_running_loop().time() - due))
        self.start()

    def stop(self) -> None:
        self._timer.cancel()
