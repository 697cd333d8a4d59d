"""How far this site's ledger had come, kept beside its identity and outside of the ledger's own file.

A ledger that is gone or was put back must not begin anew with a budget that is spent. What is written here
is never ahead of the ledger, and no answer leaves before the row that set its study's price aside is here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from eigenveil.accounting import NOTHING, Cost
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.ints import digest
from eigenveil.ledger import Ledger
from eigenveil_client.identity_files import damaged
from eigenveil_common.files import read_secret, write_secret
from eigenveil_common.ledger_store import LedgerStore

NAME = "ledger.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A state of the ledger: its rows, the digest of the last one, and what was spent or set aside."""

    size: int
    digest: str
    committed: Cost

    def is_in(self, store: LedgerStore) -> bool:
        """Whether the ledger in `store` is this one or continues it."""
        entries = store.entries()
        return self.size <= len(entries) and (not self.size or entries[self.size - 1].digest == self.digest)

    def lost(self, where: Path) -> InternalError:
        """The error for a ledger that is not."""
        return InternalError(
            Code.STORAGE,
            f"this site's ledger had {self.size} rows, and {where} does not hold them: it is gone, or "
            "another or older copy. Put the newest one back; if there is none: "
            "eigenveil-site accept-loss --config site.toml",
        )


class LedgerWitness:
    """The file in the identity's folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def seen(self) -> Seen | None:
        """What was noted last; None at a site that never agreed to anything. To be read before the ledger is,
        which another process may be writing.

        Raises:
            RequestError: the file is damaged.
        """
        if not self._path.exists():
            return None
        try:
            held = json.loads(read_secret(self._path))
            committed = Cost(micro_rho=int(held["micro_rho"]), atto_delta=int(held["atto_delta"]))
            return Seen(size=int(held["size"]), digest=str(held["digest"]), committed=committed)
        except (ValueError, KeyError, TypeError) as problem:
            raise damaged(self._path.parent) from problem

    def note(self, ledger: Ledger) -> None:
        """Write down where the ledger stands, durably on return; never an earlier state than before.

        Raises:
            InternalError: code `storage`.
        """
        seen = self.seen()
        if ledger.size and (seen is None or ledger.size > seen.size):
            self._write(ledger)

    def _write(self, ledger: Ledger) -> None:
        committed = ledger.committed()
        held = {
            "size": ledger.size,
            "digest": ledger.head,
            "micro_rho": committed.micro_rho,
            "atto_delta": str(committed.atto_delta),
        }
        write_secret(self._path, json.dumps(held, sort_keys=True).encode())

    def accept_loss(self, store: LedgerStore) -> Cost:
        """Charge, and return, what was spent or set aside beyond what the ledger says; then go on with it.
        Repeated after a crash, it charges once.

        Raises:
            RequestError: code `conflict`, nothing is lost; or the budget does not hold what is lost.
            InternalError: code `storage`.
        """
        seen = self.seen()
        if seen is None or seen.is_in(store):
            raise RequestError(Code.CONFLICT, "the ledger is whole; there is no loss to accept")
        study = digest("lost-rows", {"head": seen.digest, "size": str(seen.size)})
        if study not in store.ledger.spent_by_study:
            store.reserve(study, _beyond(seen.committed, store.ledger.committed()))
        if study in store.ledger.reserved:
            store.charge(study, 0, seen.digest, store.ledger.reserved[study])
            store.settle(study)
        self._write(store.ledger)
        return store.ledger.spent_by_study[study]


def _beyond(seen: Cost, now: Cost) -> Cost:
    if seen.fits(now):
        return NOTHING
    return Cost(
        micro_rho=max(0, seen.micro_rho - now.micro_rho), atto_delta=max(0, seen.atto_delta - now.atto_delta)
    )
