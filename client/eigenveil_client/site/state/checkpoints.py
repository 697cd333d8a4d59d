"""The latest signed checkpoint of the coordinator's ledger, kept for it [R20].

A coordinator that was put back to an older state must not go on as if nothing had been spent since. So a
site keeps the last checkpoint that it saw, shows it in every greeting, and lets it move forward only.
"""

from __future__ import annotations

from eigenveil.accounting.checkpoint import Checkpoint, verify_checkpoint
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil_common.log import alarm
from eigenveil_common.storage.database import Database, Row
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


class HeldCheckpoints:
    """The checkpoint that this site holds, in `database` (whose schema includes `SCHEMA`)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def latest(self) -> pb.SignedCheckpoint | None:
        """What to show in a greeting."""
        row = self._row(LATEST)
        if row is None:
            return None
        return pb.SignedCheckpoint(checkpoint_json=row["head"], signature=row["signature"])

    def digest(self) -> bytes:
        """The digest of its last row; empty if none is held."""
        row = self._row(LATEST)
        return b"" if row is None else bytes.fromhex(row["digest"])

    def size(self, place: str = LATEST) -> int:
        """How many rows of the coordinator's ledger a checkpoint vouches for; 0 if there is none."""
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
        """Keep a checkpoint, durably on return. `parted`: the coordinator says that it does not follow.

        Raises:
            PeerError: it is not signed by this federation; nothing was kept.
            RequestError: code `conflict`, it does not follow the one that is held. That is written down;
                nothing more may be sent before the operator has decided.
        """
        checkpoint = verify_checkpoint(signed.checkpoint_json, signed.signature, release_key)
        if checkpoint.federation != federation:
            raise PeerError(
                Code.PROTOCOL, f"the checkpoint is of federation {checkpoint.federation}, not {federation}"
            )
        held = self.latest()
        if held is None or (
            not parted
            and _may_follow(checkpoint, verify_checkpoint(held.checkpoint_json, held.signature, release_key))
        ):
            if held != signed:
                self._keep(LATEST, signed, checkpoint)
            return
        self._keep(REFUSED, signed, checkpoint)
        alarm("ledger-backwards", here=self.size(), there=checkpoint.size)
        raise RequestError(Code.CONFLICT, self._backwards())

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
        return before, self.size()

    def _row(self, place: str) -> Row | None:
        return next(iter(self._database.rows("SELECT * FROM heads WHERE place = ?", (place,))), None)

    def _keep(self, place: str, signed: pb.SignedCheckpoint, checkpoint: Checkpoint) -> None:
        with self._database.transaction() as change:
            change.execute(
                "INSERT INTO heads VALUES (?, ?, ?, ?, ?) ON CONFLICT (place) DO UPDATE SET "
                "head = excluded.head, signature = excluded.signature, "
                "size = excluded.size, digest = excluded.digest",
                (place, signed.checkpoint_json, signed.signature, checkpoint.size, checkpoint.digest),
            )

    def _backwards(self) -> str:
        return (
            f"the coordinator's ledger of {self.size(REFUSED)} rows does not follow the one of {self.size()} "
            "rows that it showed before. It was put back to an older state, or another answers in its place. "
            "Speak to its operator; to go on with it: eigenveil-site accept-checkpoint --config site.toml"
        )


def _may_follow(checkpoint: Checkpoint, held: Checkpoint) -> bool:
    """Whether `checkpoint` is the one that is held, or a later one that does not contradict it."""
    if checkpoint.size <= held.size:
        return (checkpoint.size, checkpoint.digest) == (held.size, held.digest)
    return not checkpoint.contradicts(held)
