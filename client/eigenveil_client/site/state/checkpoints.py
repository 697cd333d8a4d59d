"""The latest signed head of the coordinator's ledger, kept for it [R20].

A coordinator that was put back to an older state must not go on as if nothing had been spent since. So a
site keeps the last head that it saw, shows it in every greeting, and lets it move forward only.
"""

from __future__ import annotations

from eigenveil.accounting.checkpoint import Checkpoint, verify_checkpoint
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil_common.log import alarm
from eigenveil_common.storage.database import Connection, Database
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
    """The head that this site holds, in `database` (whose schema includes `SCHEMA`)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def latest(self) -> pb.SignedHead | None:
        """What to show in a greeting."""
        return self._at(LATEST)

    def digest(self) -> bytes:
        """The digest of its last row; empty if none is held."""
        rows = self._database.rows("SELECT digest FROM heads WHERE place = ?", (LATEST,))
        return bytes.fromhex(rows[0]["digest"]) if rows else b""

    def size(self, place: str = LATEST) -> int:
        """How many rows of the coordinator's ledger a head vouches for; 0 if there is none."""
        rows = self._database.rows("SELECT size FROM heads WHERE place = ?", (place,))
        return int(rows[0]["size"]) if rows else 0

    def check(self) -> None:
        """Insist that no head was refused which the operator has not decided about.

        Raises:
            RequestError: code `conflict`.
        """
        if self._at(REFUSED) is not None:
            raise RequestError(Code.CONFLICT, self._backwards())

    def take(
        self, signed: pb.SignedHead, release_key: bytes, federation: str, *, parted: bool = False
    ) -> None:
        """Keep a head, durably on return. `parted`: the coordinator says that it does not follow.

        Raises:
            PeerError: it is not signed by this federation; nothing was kept.
            RequestError: code `conflict`, it does not follow the one that is held. That is written down;
                nothing more may be sent before the operator has decided.
        """
        head = verify_checkpoint(signed.head_json, signed.signature, release_key)
        if head.federation != federation:
            raise PeerError(Code.PROTOCOL, f"the head is of federation {head.federation}, not {federation}")
        held = self.latest()
        if held is None or (
            not parted and _may_follow(head, verify_checkpoint(held.head_json, held.signature, release_key))
        ):
            if held != signed:
                self._keep(LATEST, signed, head)
            return
        self._keep(REFUSED, signed, head)
        alarm("ledger-backwards", here=self.size(), there=head.size)
        raise RequestError(Code.CONFLICT, self._backwards())

    def accept(self) -> tuple[int, int]:
        """Go on with the head that was refused, by the operator's word: rows held before, and now.

        Raises:
            RequestError: code `not-found`, none was refused.
        """
        before = self.size()
        if self._at(REFUSED) is None:
            raise RequestError(Code.NOT_FOUND, "no head of the coordinator's ledger was refused here")
        with self._database.transaction() as change:
            change.execute("DELETE FROM heads WHERE place = ?", (LATEST,))
            change.execute("UPDATE heads SET place = ? WHERE place = ?", (LATEST, REFUSED))
        return before, self.size()

    def _at(self, place: str) -> pb.SignedHead | None:
        rows = self._database.rows("SELECT head, signature FROM heads WHERE place = ?", (place,))
        return pb.SignedHead(head_json=rows[0]["head"], signature=rows[0]["signature"]) if rows else None

    def _keep(self, place: str, signed: pb.SignedHead, head: Checkpoint) -> None:
        with self._database.transaction() as change:
            _put(change, place, signed, head)

    def _backwards(self) -> str:
        return (
            f"the coordinator's ledger of {self.size(REFUSED)} rows does not follow the one of {self.size()} "
            "rows that it showed before. It was put back to an older state, or another answers in its place. "
            "Speak to its operator; to go on with it: eigenveil-site accept-head --config site.toml"
        )


def _put(change: Connection, place: str, signed: pb.SignedHead, head: Checkpoint) -> None:
    change.execute(
        "INSERT INTO heads VALUES (?, ?, ?, ?, ?) ON CONFLICT (place) DO UPDATE SET "
        "head = excluded.head, signature = excluded.signature, "
        "size = excluded.size, digest = excluded.digest",
        (place, signed.head_json, signed.signature, head.size, head.digest),
    )


def _may_follow(head: Checkpoint, held: Checkpoint) -> bool:
    """Whether `head` is the one that is held, or a later one that does not contradict it."""
    if head.size <= held.size:
        return (head.size, head.digest) == (held.size, held.digest)
    return not head.contradicts(held)
