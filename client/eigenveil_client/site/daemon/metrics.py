"""A site's metrics as a file for a node exporter's textfile collector: a site opens no listening socket.

Nothing about the records or their number is in it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from eigenveil.accounting.ledger import Ledger
from eigenveil.errors import EigenveilError
from eigenveil_common.files import write_durably
from eigenveil_common.log import event

EVERY_SECONDS = 15.0
DAY = 86400.0


@dataclass(slots=True)
class Contact:
    """What the daemon notes of its connections. `last` is Unix time of the last answer, `ends` that of the
    end of the certificate in use; 0 before there was any."""

    connected: bool = False
    connections: int = 0
    last: float = 0.0
    ends: float = 0.0
    lost: Counter[str] = field(default_factory=Counter)


def text(contact: Contact, ledger: Ledger, now: float) -> str:
    """The metrics in Prometheus' text format."""
    committed = ledger.committed().micro_rho
    spent = ledger.spent.micro_rho
    families: dict[str, tuple[str, str, dict[str, float]]] = {
        "eigenveil_site_connected": ("gauge", "1 while connected.", {"": float(contact.connected)}),
        "eigenveil_site_connections_total": (
            "counter", "Connections made.", {"": contact.connections}),
        "eigenveil_site_lost_total": (
            "counter", "Connections lost or not made.",
            {f'{{code="{code}"}}': count for code, count in sorted(contact.lost.items())}),
        "eigenveil_site_last_contact_seconds": (
            "gauge", "Unix time of the coordinator's last answer.", {"": contact.last}),
        "eigenveil_site_certificate_days_left": (
            "gauge", "Days until the certificate in use ends.", {"": max(0.0, (contact.ends - now) / DAY)}),
        "eigenveil_site_budget_micro_rho": ("gauge", "This site's budget.", {
            '{part="total"}': ledger.budget.micro_rho,
            '{part="spent"}': spent,
            '{part="reserved"}': committed - spent,
        }),
        "eigenveil_site_written_seconds": ("gauge", "Unix time of this file.", {"": now}),
    }  # fmt: skip
    lines = []
    for name, (kind, about, values) in families.items():
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{labels} {value:.15g}" for labels, value in values.items()]
    return "\n".join(lines) + "\n"


async def keep_written(path: Path, contact: Contact, ledger: Callable[[], Ledger]) -> None:
    """Write the file anew for ever. One that cannot be written is told once, and ends nothing."""
    told = False
    while True:
        data = text(contact, ledger(), time.time()).encode()
        try:
            await asyncio.to_thread(write_durably, path, data)
        except (EigenveilError, OSError) as problem:
            if not told:
                event("metrics-unwritten", logging.WARNING, detail=problem)
            told = True
        else:
            told = False
        await asyncio.sleep(EVERY_SECONDS)
