"""Rollback detection by the coordinator's latest checkpoint and this site's noted ledger position [R20]. A
restored coordinator must not continue as if nothing had been spent since, nor a site with a lost or old
ledger start with a spent budget."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path

from eigenveil.accounting.checkpoint import Checkpoint, verify_checkpoint
from eigenveil.accounting.ledger import Ledger
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, InternalError, PeerError, RequestError
from eigenveil.numerics.encoding import digest
from eigenveil.signatures import Keys, ReleaseKeys
from eigenveil_common.concurrency import locked
from eigenveil_common.files import read_secret, write_secret
from eigenveil_common.log import log_error
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb

SCHEMA = """
CREATE TABLE checkpoints (
  place TEXT PRIMARY KEY,
  head BLOB NOT NULL,
  signature BLOB NOT NULL,
  size INTEGER NOT NULL,
  digest TEXT NOT NULL
) STRICT;
"""
LATEST, REFUSED = "latest", "refused"
VerifiedCheckpoint = tuple[pb.SignedCheckpoint, Checkpoint]


class CheckpointStore:
    """Coordinator's checkpoint stored in `database` (whose schema includes `SCHEMA`).

    A site stores the last signed checkpoint, shows it in every greeting, and accepts only later ones. A
    checkpoint counts when it is accepted, and becomes durable with the next answer, refusal or note."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._latest: VerifiedCheckpoint | None = None  # the last one that this process accepted
        self._saved = True  # True if it is durable

    def latest(self) -> pb.SignedCheckpoint | None:
        """Return the checkpoint to show in a greeting."""
        if self._latest is not None:
            return self._latest[0]
        row = self._row(LATEST)
        if row is None:
            return None
        return pb.SignedCheckpoint(checkpoint_json=row["head"], signature=row["signature"])

    def digest(self) -> bytes:
        """Return the digest of its last row; empty if there is no checkpoint."""
        if self._latest is not None:
            return bytes.fromhex(self._latest[1].digest)
        row = self._row(LATEST)
        return b"" if row is None else bytes.fromhex(row["digest"])

    def size(self, place: str = LATEST) -> int:
        """Return the number of rows of the coordinator's ledger in a durable checkpoint; 0 without one."""
        row = self._row(place)
        return 0 if row is None else int(row["size"])

    def check(self) -> None:
        """Require that no refused checkpoint waits for the operator's decision; else raise code
        `conflict`."""
        if self._row(REFUSED) is not None:
            raise RequestError(Code.CONFLICT, self._rollback_text())

    def advance(
        self, signed: pb.SignedCheckpoint, keys: ReleaseKeys, federation: str, *, parted: bool = False
    ) -> None:
        """Hold a checkpoint from now on. `parted`: the coordinator says that it does not follow.

        Raises:
            PeerError: it is not signed by this federation; nothing was accepted.
            RequestError: code `conflict`, it does not follow the stored one. The refusal is recorded; nothing
                more may be sent before the operator has decided."""
        checkpoint = verify_checkpoint(signed.checkpoint_json, signed.signature, keys.accepted)
        if checkpoint.federation != federation:
            raise PeerError(
                Code.PROTOCOL, f"the checkpoint is of federation {checkpoint.federation}, not {federation}"
            )
        stored = self._stored(keys.known)
        if stored is None or (not parted and _may_follow(checkpoint, stored[1])):
            if stored is None or stored[0] != signed:
                with self._lock:
                    self._latest, self._saved = (signed, checkpoint), False
            return
        with self._database.transaction() as change:
            self.save(self.unsaved(), change)
            self._store(REFUSED, (signed, checkpoint), change)
        log_error("ledger-backwards", here=self.size(), there=checkpoint.size)
        raise RequestError(Code.CONFLICT, self._rollback_text())

    def _stored(self, keys: Keys) -> VerifiedCheckpoint | None:
        signed = self.latest()
        if self._latest is not None or signed is None:
            return self._latest
        return signed, verify_checkpoint(signed.checkpoint_json, signed.signature, keys)

    def unsaved(self) -> VerifiedCheckpoint | None:
        """Return the checkpoint that is not durable yet, if any."""
        with self._lock:
            return None if self._saved else self._latest

    def save(self, verified: VerifiedCheckpoint | None, change: Connection) -> None:
        """Store an unsaved checkpoint within the transaction `change`; a longer one stays."""
        if verified is not None:
            self._store(LATEST, verified, change)

    @staticmethod
    def _store(place: str, verified: VerifiedCheckpoint, change: Connection) -> None:
        """Store a checkpoint. Two threads may do so: the one with more rows is the later one."""
        signed, checkpoint = verified
        change.execute(
            "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?) ON CONFLICT (place) DO UPDATE SET head = "
            "excluded.head, signature = excluded.signature, size = excluded.size, digest = excluded.digest "
            "WHERE excluded.size > checkpoints.size OR checkpoints.place = ?",
            (place, signed.checkpoint_json, signed.signature, checkpoint.size, checkpoint.digest, REFUSED),
        )

    def mark_saved(self, verified: VerifiedCheckpoint | None) -> None:
        """Record that the transaction is durable."""
        with self._lock:
            self._saved = self._saved or self._latest is verified

    def flush(self) -> None:
        """Make the checkpoint durable. Raises InternalError, code `storage`."""
        if (verified := self.unsaved()) is not None:
            with self._database.transaction() as change:
                self.save(verified, change)
            self.mark_saved(verified)

    def accept(self) -> tuple[int, int]:
        """Accept the refused checkpoint by the operator's decision; return the rows before and now. Raises
        RequestError, code `not-found`, if no checkpoint was refused."""
        before = self.size()
        if self._row(REFUSED) is None:
            raise RequestError(Code.NOT_FOUND, "no checkpoint of the coordinator's ledger was refused here")
        with self._database.transaction() as change:
            change.execute("DELETE FROM checkpoints WHERE place = ?", (LATEST,))
            change.execute("UPDATE checkpoints SET place = ? WHERE place = ?", (LATEST, REFUSED))
        self._latest, self._saved = None, True
        return before, self.size()

    def _row(self, place: str) -> Row | None:
        return next(iter(self._database.rows("SELECT * FROM checkpoints WHERE place = ?", (place,))), None)

    def _rollback_text(self) -> str:
        return (
            f"the coordinator's ledger of {self.size(REFUSED)} rows does not follow the one of {self.size()} "
            "rows that it showed before: it was restored from an old copy, or another server took its place. "
            "Speak to its operator; to accept it: eigenveil-site accept-checkpoint --config site.toml"
        )


def _may_follow(checkpoint: Checkpoint, stored: Checkpoint) -> bool:
    """Return True if `checkpoint` is the stored one, or a later one that does not contradict it."""
    if checkpoint.size <= stored.size:
        return (checkpoint.size, checkpoint.digest) == (stored.size, stored.digest)
    return not checkpoint.contradicts(stored)


NAME = "ledger.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedPosition:
    """Noted position of the ledger: number of rows, digest of the last one, spent or reserved budget, and
    `gaussian`, true if only Gaussian noise was admitted."""

    size: int
    digest: str
    committed: Cost
    gaussian: bool

    @classmethod
    def of(cls, ledger: Ledger) -> NotedPosition:
        """Return the present position of a ledger."""
        committed = ledger.committed()
        return cls(size=ledger.size, digest=ledger.head, committed=committed, gaussian=ledger.gaussian)

    def is_in(self, store: LedgerStore) -> bool:
        """Return True if the ledger in `store` contains this position."""
        entries = store.entries()
        return self.size <= len(entries) and (not self.size or entries[self.size - 1].digest == self.digest)

    def lost(self, where: Path) -> InternalError:
        """Return the error for a ledger that does not contain this position."""
        return InternalError(
            Code.STORAGE,
            f"this site's ledger had {self.size} rows, and {where} does not contain them: it is missing, or "
            "is another or older copy. Restore the newest copy; if there is none: "
            "eigenveil-site accept-loss --config site.toml",
        )


class RollbackGuard:
    """File of the noted position beside the identity, outside of the ledger's file. Several processes of a
    site may write it.

    The noted position is never ahead of the ledger. No answer leaves before the row that reserved its study's
    cost is noted; the answer's own row is noted within a second."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def noted(self) -> NotedPosition | None:
        """Return the last noted position; None at a site that never accepted a study. Read it before the
        ledger, which another process may be writing. Raises RequestError: the file is damaged, or cannot be
        read."""
        if not self._path.exists():
            return None
        try:
            stored = json.loads(read_secret(self._path))
            return NotedPosition(
                size=int(stored["size"]),
                digest=str(stored["digest"]),
                committed=Cost(micro_rho=int(stored["micro_rho"]), atto_delta=int(stored["atto_delta"])),
                gaussian=stored.get("gaussian") is True,  # absent in old files: any noise possible
            )
        except (ValueError, KeyError, TypeError) as problem:
            raise RequestError(
                Code.BAD_CONFIG,
                f"{self._path} is damaged: restore it from a backup. If there is none, and state.db is "
                "certainly the newest, remove this file only; it is written again",
            ) from problem

    def note(self, now: NotedPosition) -> None:
        """Note the ledger's position, durable on return; never an earlier position than before. Raises
        InternalError: code `storage`, also if the last noted position cannot be read."""
        if not now.size:
            return
        try:
            with locked(self._path.parent):  # no process writes between this read and this write
                noted = self.noted()
                if noted is None or now.size > noted.size:
                    self._write(now)
        except (OSError, RequestError) as problem:
            raise InternalError(Code.STORAGE, f"cannot write {self._path}: {problem}") from problem

    def _write(self, now: NotedPosition) -> None:
        stored = {
            "size": now.size,
            "digest": now.digest,
            "micro_rho": now.committed.micro_rho,
            "atto_delta": str(now.committed.atto_delta),
            "gaussian": now.gaussian,
        }
        write_secret(self._path, json.dumps(stored, sort_keys=True).encode())

    def lost(self, store: LedgerStore) -> NotedPosition:
        """Return the noted position that is missing in the ledger. Raises RequestError, code `conflict`, if
        nothing is lost."""
        noted = self.noted()
        if noted is None or noted.is_in(store):
            raise RequestError(Code.CONFLICT, "the ledger is complete; there is no loss to accept")
        return noted

    def accept_loss(self, store: LedgerStore) -> Cost:
        """Charge and return the budget that was spent or reserved and is not spent in the ledger.

        No study may be open in the ledger, or its reservation could be freed later. If repeated after a
        crash, it charges once.

        Raises:
            RequestError: code `conflict`, nothing is lost; or the budget is too small for the loss.
            InternalError: code `storage`."""
        noted = self.lost(store)
        study = loss_id(noted)
        if not store.ledger.knows(study):
            had, spent = noted.committed, store.ledger.spent
            cost = Cost(
                micro_rho=max(0, had.micro_rho - spent.micro_rho),
                atto_delta=max(0, had.atto_delta - spent.atto_delta),
            )
            store.restore_reservation(study, cost, gaussian=noted.gaussian)
        if study in store.ledger.reserved:
            store.charge(study, 0, study, store.ledger.reserved[study])  # no query: the loss names itself
            store.settle(study)
        self._write(NotedPosition.of(store.ledger))
        return store.ledger.spent_by(study)


def loss_id(noted: NotedPosition) -> str:
    """Return the id under which the loss of a noted position is charged."""
    return digest("lost-rows", {"head": noted.digest, "size": str(noted.size)})
