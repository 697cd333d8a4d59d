"""Metrics of a site as a file for a node exporter, without a word about the records or their number."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import Metric, generate_latest
from prometheus_client.core import CounterMetricFamily as Counted
from prometheus_client.core import GaugeMetricFamily as Gauge

from eigenveil.errors import EigenveilError
from eigenveil_common.files import write_durably
from eigenveil_common.log import event
from eigenveil_common.storage.ledger_store import LedgerTotals

SITE = "eigenveil_site"
WRITE_SECONDS = 15.0
DAY_SECONDS = 86400.0


@dataclass(slots=True)
class Contact:
    """Counters of the daemon's connections and of the outcomes of `notices`.

    `last` is the Unix time of the last response, `ends` that of the expiry of the certificate; 0 if unknown.
    """

    connected: bool = False
    connections: int = 0
    last: float = 0.0
    ends: float = 0.0
    disconnects: Counter[str] = field(default_factory=Counter)
    notices: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SiteMetrics:
    """Collector of the metrics at the Unix time `now`."""

    contact: Contact
    totals: LedgerTotals
    now: float

    def collect(self) -> Iterator[Metric]:
        contact, totals, spent = self.contact, self.totals, self.totals.spent.micro_rho
        days = max(0.0, (contact.ends - self.now) / DAY_SECONDS)
        parts = {
            "total": totals.limit.micro_rho, "spent": spent, "reserved": totals.committed.micro_rho - spent
        }  # fmt: skip
        yield Gauge(f"{SITE}_connected", "1 while connected.", float(contact.connected))
        yield Counted(f"{SITE}_connections", "Connections made.", contact.connections)
        yield _labelled(Counted, "lost", "Connections lost or not made.", "code", contact.disconnects)
        yield _labelled(Counted, "notices", "Mails and webhook calls to people.", "outcome", contact.notices)
        yield Gauge(
            f"{SITE}_last_contact_seconds", "Unix time of the coordinator's last answer.", contact.last
        )
        yield Gauge(f"{SITE}_certificate_days_left", "Days until the certificate in use ends.", days)
        yield _labelled(Gauge, "budget_micro_rho", "This site's budget.", "part", parts)
        yield Gauge(f"{SITE}_written_seconds", "Unix time of this file.", self.now)


def _labelled(
    kind: type[Counted | Gauge], name: str, about: str, label: str, values: Mapping[str, int]
) -> Metric:
    """Return a metric with one value for each value of its label."""
    metric = kind(f"{SITE}_{name}", about, labels=[label])
    for key, value in sorted(values.items()):
        metric.add_metric([key], value)
    return metric


def metrics_text(contact: Contact, totals: LedgerTotals, now: float) -> bytes:
    return generate_latest(SiteMetrics(contact=contact, totals=totals, now=now))


async def write_periodically(path: Path, contact: Contact, totals: Callable[[], LedgerTotals]) -> None:
    """Write the file periodically. A failure is logged once and ends nothing."""
    reported = False
    while True:
        data = metrics_text(contact, totals(), time.time())
        try:
            await asyncio.to_thread(write_durably, path, data)
        except (EigenveilError, OSError) as problem:
            if not reported:
                event("metrics-unwritten", logging.WARNING, detail=problem)
            reported = True
        else:
            reported = False
        await asyncio.sleep(WRITE_SECONDS)
