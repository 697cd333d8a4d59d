"""How far this site's ledger had come, kept beside its identity and outside of the ledger's own file.

A ledger that is gone or was put back must not begin anew with a budget that is spent. What is written here
is never ahead of the ledger; no answer leaves before the row that set its study's price aside is here, and
the row of the answer itself follows within a second.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from eigenveil.accounting.ledger import Ledger
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.numerics.encoding import digest
from eigenveil_common.files import read_secret, write_secret
from eigenveil_common.locks import locked
from eigenveil_common.storage.ledger_store import LedgerStore

NAME = "ledger.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A state of the ledger: its rows, the digest of the last one, what was spent or set aside, and whether
    nothing but Gaussian noise was admitted for any."""

    size: int
    digest: str
    committed: Cost
    gaussian: bool

    @classmethod
    def of(cls, ledger: Ledger) -> Seen:
        """Where a ledger stands."""
        return cls(
            size=ledger.size, digest=ledger.head, committed=ledger.committed(), gaussian=ledger.gaussian
        )

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


class RollbackGuard:
    """The file in the identity's folder. Several processes of a site may write it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def seen(self) -> Seen | None:
        """What was noted last; None at a site that never agreed to anything. To be read before the ledger is,
        which another process may be writing.

        Raises:
            RequestError: the file is damaged, or cannot be read.
        """
        if not self._path.exists():
            return None
        try:
            held = json.loads(read_secret(self._path))
            committed = Cost(micro_rho=int(held["micro_rho"]), atto_delta=int(held["atto_delta"]))
            return Seen(
                size=int(held["size"]),
                digest=str(held["digest"]),
                committed=committed,
                gaussian=held.get("gaussian") is True,  # not said by notes of before: any noise may have been
            )
        except (ValueError, KeyError, TypeError) as problem:
            raise RequestError(
                Code.BAD_CONFIG,
                f"{self._path} is damaged: put it back from a copy. If there is none, and state.db is "
                "certainly the newest, remove this one file; it is written anew",
            ) from problem

    def note(self, now: Seen) -> None:
        """Write down where the ledger stands, durably on return; never an earlier state than before.

        Raises:
            InternalError: code `storage`, also if what was noted before cannot be read any more.
        """
        if not now.size:
            return
        try:
            with locked(self._path.parent):  # nobody writes between our reading and our writing
                seen = self.seen()
                if seen is None or now.size > seen.size:
                    self._write(now)
        except (OSError, RequestError) as problem:
            raise InternalError(Code.STORAGE, f"cannot keep {self._path}: {problem}") from problem

    def _write(self, now: Seen) -> None:
        held = {
            "size": now.size,
            "digest": now.digest,
            "micro_rho": now.committed.micro_rho,
            "atto_delta": str(now.committed.atto_delta),
            "gaussian": now.gaussian,
        }
        write_secret(self._path, json.dumps(held, sort_keys=True).encode())

    def lost(self, store: LedgerStore) -> Seen:
        """What was noted and is not in the ledger.

        Raises:
            RequestError: code `conflict`, nothing is lost.
        """
        seen = self.seen()
        if seen is None or seen.is_in(store):
            raise RequestError(Code.CONFLICT, "the ledger is whole; there is no loss to accept")
        return seen

    def accept_loss(self, store: LedgerStore) -> Cost:
        """Charge, and return, all that had been spent or set aside and that the ledger does not say was
        spent; then go on with it. No study may be open in it: what it sets aside could come free again.
        Repeated after a crash, it charges once.

        Raises:
            RequestError: code `conflict`, nothing is lost; or the budget does not hold what is lost.
            InternalError: code `storage`.
        """
        seen = self.lost(store)
        study = lost_study(seen)
        if study not in store.ledger.spent_by_study:
            had, spent = seen.committed, store.ledger.spent
            micro_rho = max(0, had.micro_rho - spent.micro_rho)
            atto_delta = max(0, had.atto_delta - spent.atto_delta)
            cost = Cost(micro_rho=micro_rho, atto_delta=atto_delta)
            store.reserve_lost(study, cost, gaussian=seen.gaussian)
        if study in store.ledger.reserved:
            store.charge(study, 0, study, store.ledger.reserved[study])  # for no question: it names itself
            store.settle(study)
        self._write(Seen.of(store.ledger))
        return store.ledger.spent_by_study[study]


def lost_study(seen: Seen) -> str:
    """The name under which the loss of what was seen is charged."""
    return digest("lost-rows", {"head": seen.digest, "size": str(seen.size)})
