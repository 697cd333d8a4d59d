"""The latest signed checkpoint of the coordinator's ledger, kept for it [R20].

A coordinator that was put back to an older state must not go on as if nothing had been spent since. So a
site keeps the last checkpoint that it saw, shows it in every greeting, and lets it move forward only. It is
held from the moment it was taken, and durable with the next answer, refusal or note, whichever is first.
"""

from __future__ import annotations

import threading

from eigenveil.accounting.checkpoint import Checkpoint, verify_checkpoint
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil_common.log import alarm
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_proto.v1 import eigenveil_pb2 as pb

SCHEMA = """
CREATE TABLE heads (
  place TEXT PRIMARY KEY,
  head BLOB NOT NULL,
  signature BLOB NOT NULL,
  size INTEGER NOT NULL,
  digest TEXT NOT NULL
) STRICT;
"""
LATEST, REFUSED = "latest", "refused"
Taken = tuple[pb.SignedCheckpoint, Checkpoint]


class HeldCheckpoints:
    """The checkpoint that this site holds, in `database` (whose schema includes `SCHEMA`)."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._taken: Taken | None = None  # the last one that this process took
        self._kept = True  # whether that is durable

    def latest(self) -> pb.SignedCheckpoint | None:
        """What to show in a greeting."""
        if self._taken is not None:
            return self._taken[0]
        row = self._row(LATEST)
        if row is None:
            return None
        return pb.SignedCheckpoint(checkpoint_json=row["head"], signature=row["signature"])

    def digest(self) -> bytes:
        """The digest of its last row; empty if none is held."""
        if self._taken is not None:
            return bytes.fromhex(self._taken[1].digest)
        row = self._row(LATEST)
        return b"" if row is None else bytes.fromhex(row["digest"])

    def size(self, place: str = LATEST) -> int:
        """How many rows of the coordinator's ledger a durable checkpoint vouches for; 0 if there is none."""
        row = self._row(place)
        return 0 if row is None else int(row["size"])

    def check(self) -> None:
        """Insist that no checkpoint was refused which the operator has not decided about.

        Raises:
            RequestError: code `conflict`.
        """
        if self._row(REFUSED) is not None:
            raise RequestError(Code.CONFLICT, self._backwards())

    def take(
        self, signed: pb.SignedCheckpoint, release_key: bytes, federation: str, *, parted: bool = False
    ) -> None:
        """Hold a checkpoint from now on. `parted`: the coordinator says that it does not follow.

        Raises:
            PeerError: it is not signed by this federation; nothing was taken.
            RequestError: code `conflict`, it does not follow the one that is held. That is written down;
                nothing more may be sent before the operator has decided.
        """
        checkpoint = verify_checkpoint(signed.checkpoint_json, signed.signature, release_key)
        if checkpoint.federation != federation:
            raise PeerError(
                Code.PROTOCOL, f"the checkpoint is of federation {checkpoint.federation}, not {federation}"
            )
        held = self._held(release_key)
        if held is None or (not parted and _may_follow(checkpoint, held[1])):
            if held is None or held[0] != signed:
                with self._lock:
                    self._taken, self._kept = (signed, checkpoint), False
            return
        with self._database.transaction() as change:
            self.keep(self.unkept(), change)
            _store(REFUSED, (signed, checkpoint), change)
        alarm("ledger-backwards", here=self.size(), there=checkpoint.size)
        raise RequestError(Code.CONFLICT, self._backwards())

    def _held(self, release_key: bytes) -> Taken | None:
        signed = self.latest()
        if self._taken is not None or signed is None:
            return self._taken
        return signed, verify_checkpoint(signed.checkpoint_json, signed.signature, release_key)

    def unkept(self) -> Taken | None:
        """What is held and not durable."""
        with self._lock:
            return None if self._kept else self._taken

    @staticmethod
    def keep(taken: Taken | None, change: Connection) -> None:
        """Store what was unkept, within the transaction `change`; one with more rows stays."""
        if taken is not None:
            _store(LATEST, taken, change)

    def kept(self, taken: Taken | None) -> None:
        """That transaction is durable."""
        with self._lock:
            self._kept = self._kept or self._taken is taken

    def flush(self) -> None:
        """Make what is held durable. Raises InternalError, code `storage`."""
        taken = self.unkept()
        if taken is not None:
            with self._database.transaction() as change:
                self.keep(taken, change)
            self.kept(taken)

    def accept(self) -> tuple[int, int]:
        """Go on with the checkpoint that was refused, by the operator's word: rows held before, and now.

        Raises:
            RequestError: code `not-found`, none was refused.
        """
        before = self.size()
        if self._row(REFUSED) is None:
            raise RequestError(Code.NOT_FOUND, "no checkpoint of the coordinator's ledger was refused here")
        with self._database.transaction() as change:
            change.execute("DELETE FROM heads WHERE place = ?", (LATEST,))
            change.execute("UPDATE heads SET place = ? WHERE place = ?", (LATEST, REFUSED))
        self._taken, self._kept = None, True
        return before, self.size()

    def _row(self, place: str) -> Row | None:
        return next(iter(self._database.rows("SELECT * FROM heads WHERE place = ?", (place,))), None)

    def _backwards(self) -> str:
        return (
            f"the coordinator's ledger of {self.size(REFUSED)} rows does not follow the one of {self.size()} "
            "rows that it showed before. It was put back to an older state, or another answers in its place. "
            "Speak to its operator; to go on with it: eigenveil-site accept-checkpoint --config site.toml"
        )


def _store(place: str, taken: Taken, change: Connection) -> None:
    """Two threads may be at it: of those that were taken, the one with more rows came later."""
    signed, checkpoint = taken
    change.execute(
        "INSERT INTO heads VALUES (?, ?, ?, ?, ?) ON CONFLICT (place) DO UPDATE SET head = excluded.head, "
        "signature = excluded.signature, size = excluded.size, digest = excluded.digest "
        "WHERE excluded.size > heads.size OR heads.place = ?",
        (place, signed.checkpoint_json, signed.signature, checkpoint.size, checkpoint.digest, REFUSED),
    )


def _may_follow(checkpoint: Checkpoint, held: Checkpoint) -> bool:
    """Whether `checkpoint` is the one that is held, or a later one that does not contradict it."""
    if checkpoint.size <= held.size:
        return (checkpoint.size, checkpoint.digest) == (held.size, held.digest)
    return not checkpoint.contradicts(held)
