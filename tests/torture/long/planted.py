"""Faults of daemons that the long run must find; each is built in by the process that has it."""

from __future__ import annotations

import sys
from collections.abc import Callable

from eigenveil.accounting.zcdp import Cost
from eigenveil_common.storage.ledger_store import ExtraWrite, LedgerStore

LEAK_BYTES = 2**20
LEAKED: list[bytearray] = []


def _at_sites(build: Callable[[], None]) -> None:
    if sys.argv[0] == "eigenveil-site":
        build()


def leak() -> None:
    """A site's daemon never lets go of some memory of each study."""
    _at_sites(_leak)


def _leak() -> None:
    honest = LedgerStore.settle

    def settle(self: LedgerStore, study: str, also: ExtraWrite = None) -> None:
        LEAKED.append(bytearray(b"\x01" * LEAK_BYTES))
        honest(self, study, also)

    LedgerStore.settle = settle  # type: ignore[method-assign]


def charge_twice_after_restart() -> None:
    """A site that was started again charges the first answer of a study twice."""
    _at_sites(_charge_twice)


def _charge_twice() -> None:
    first, honest = list[bool](), LedgerStore.charge

    def charge(
        self: LedgerStore, study: str, round: int, query: str, cost: Cost, also: ExtraWrite = None
    ) -> None:
        first.append(not self.ledger.spent.micro_rho)
        honest(self, study, round, query, cost if first[0] or round else cost + cost, also)

    LedgerStore.charge = charge  # type: ignore[method-assign]
