"""A site's metrics as a file for a node exporter's textfile collector: its daemon opens no listening socket.

Nothing about the records or their number is in it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import Metric, generate_latest
from prometheus_client.core import CounterMetricFamily as Counted
from prometheus_client.core import GaugeMetricFamily as Gauge

from eigenveil.errors import EigenveilError
from eigenveil_common.files import write_durably
from eigenveil_common.log import event
from eigenveil_common.storage.ledger_store import LedgerTotals

EVERY_SECONDS = 15.0
DAY = 86400.0


@dataclass(slots=True)
class Contact:
    """What the daemon notes of its connections, and what became of `notices` to people. `last` is Unix time
    of the last answer, `ends` that of the end of the certificate in use; 0 before there was any."""

    connected: bool = False
    connections: int = 0
    last: float = 0.0
    ends: float = 0.0
    lost: Counter[str] = field(default_factory=Counter)
    notices: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SiteMetrics:
    """The metrics at the Unix time `now`, as a collector."""

    contact: Contact
    totals: LedgerTotals
    now: float

    def collect(self) -> Iterator[Metric]:
        contact, totals = self.contact, self.totals
        committed, spent = totals.committed.micro_rho, totals.spent.micro_rho
        days = max(0.0, (contact.ends - self.now) / DAY)
        yield _gauge("connected", "1 while connected.", float(contact.connected))
        yield Counted("eigenveil_site_connections", "Connections made.", contact.connections)
        lost = Counted("eigenveil_site_lost", "Connections lost or not made.", labels=["code"])
        for code, count in sorted(contact.lost.items()):
            lost.add_metric([code], count)
        yield lost
        notices = Counted("eigenveil_site_notices", "Mails and webhook calls to people.", labels=["outcome"])
        for outcome, count in sorted(contact.notices.items()):
            notices.add_metric([outcome], count)
        yield notices
        yield _gauge("last_contact_seconds", "Unix time of the coordinator's last answer.", contact.last)
        yield _gauge("certificate_days_left", "Days until the certificate in use ends.", days)
        budget = Gauge("eigenveil_site_budget_micro_rho", "This site's budget.", labels=["part"])
        for part, value in (
            ("total", totals.limit.micro_rho), ("spent", spent), ("reserved", committed - spent)
        ):  # fmt: skip
            budget.add_metric([part], value)
        yield budget
        yield _gauge("written_seconds", "Unix time of this file.", self.now)


def _gauge(name: str, about: str, value: float) -> Metric:
    return Gauge(f"eigenveil_site_{name}", about, value)


def text(contact: Contact, totals: LedgerTotals, now: float) -> bytes:
    return generate_latest(SiteMetrics(contact=contact, totals=totals, now=now))


async def keep_written(path: Path, contact: Contact, totals: Callable[[], LedgerTotals]) -> None:
    """Write the file anew for ever. One that cannot be written is told once, and ends nothing."""
    told = False
    while True:
        data = text(contact, totals(), time.time())
        try:
            await asyncio.to_thread(write_durably, path, data)
        except (EigenveilError, OSError) as problem:
            if not told:
                event("metrics-unwritten", logging.WARNING, detail=problem)
            told = True
        else:
            told = False
        await asyncio.sleep(EVERY_SECONDS)
