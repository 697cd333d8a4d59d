"""Declined plans that are stored whole, because each is proof: the coordinator signed them in a name whose
owner's key did not.

The first `MOST_OF_NAME` in each name stay, `MOST_PROOFS` of at most `MOST_PROOF_BYTES` in all, until a person
forgets them. A plan in a name that people here know displaces the latest in a name that they do not, which
costs nothing to invent; else none displaces another. Who made a plan up, the coordinator or somebody who
submitted it there, the bytes do not say; that the coordinator sent it under this name, its release key says.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from eigenveil.analyst_signature.authorization import authorization_from_proto
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil_client.site.state.received_plans import ReceivedPlan, is_whole
from eigenveil_common.storage.database import Connection, Database
from eigenveil_proto.v1 import eigenveil_pb2 as pb

SCHEMA = """
CREATE TABLE declined_proofs (
  plan TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  analyst TEXT NOT NULL,
  named INTEGER NOT NULL,
  plan_json BLOB NOT NULL,
  signature BLOB NOT NULL,
  authorization BLOB NOT NULL,
  reason TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;
"""
MOST_PROOFS, MOST_OF_NAME = 16, 2
MOST_PROOF_BYTES = 4 * 2**20
STORED = (
    "SELECT COUNT(*) AS plans, "
    "COALESCE(SUM(LENGTH(plan_json) + LENGTH(signature) + LENGTH(authorization)), 0) AS bytes "
    "FROM declined_proofs"
)
DISPLACED = (
    "DELETE FROM declined_proofs WHERE plan = "
    "(SELECT plan FROM declined_proofs WHERE named = 0 ORDER BY at DESC, plan LIMIT 1) RETURNING plan"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclinedProof:
    """The plan of study `name` in the name of `analyst` (`named`: one that people here know) as the release
    key signed it, the analyst's `authorization` beside it (as it travels, empty for none), the error code of
    the decline, and the Unix time at which it came."""

    plan: str
    name: str
    analyst: str
    named: bool
    plan_json: bytes
    signature: bytes
    authorization: bytes
    reason: Code
    at: int

    @property
    def size(self) -> int:
        return len(self.plan_json) + len(self.signature) + len(self.authorization)

    def to_dict(self) -> dict[str, Any]:
        """Plain values: whose name, what came, and the signed bytes."""
        return {
            "study": self.plan,
            "name": self.name,
            "analyst": self.analyst,
            "reason": self.reason.value,
            "at": self.at,
            "plan": self.plan_json.decode(),
            "signature": self.signature.hex(),
            "authorization": self._authorization(),
        }

    def _authorization(self) -> dict[str, str] | None:
        """The fields as they came: nothing of an invalid signature is read."""
        if not self.authorization:
            return None
        came = authorization_from_proto(pb.SignedAuthorization.FromString(self.authorization))
        return {
            "said": came.said.hex(),
            "signature": came.signature.hex(),
            "card_said": came.card.said.hex(),
            "card_signature": came.card.signature.hex(),
        }


class DeclinedProofs:
    """The rows in `database` (whose schema includes `SCHEMA`)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, seen: ReceivedPlan, reason: Code, change: Connection, *, analyst: str, named: bool) -> None:
        """Store a plan within the transaction `change`, unless it is there or there is no room."""
        proof = DeclinedProof(
            plan=seen.plan, name=seen.name, analyst=analyst, named=named, plan_json=seen.plan_json,
            signature=seen.signature, authorization=seen.authorization, reason=reason, at=seen.at,
        )  # fmt: skip
        same = change.execute("SELECT plan FROM declined_proofs WHERE analyst = ?", (analyst,))
        if len(same) >= MOST_OF_NAME or proof.plan in [row["plan"] for row in same]:
            return
        while not (room := _has_room(proof, change)) and named and change.execute(DISPLACED, ()):
            pass
        if room:
            row = asdict(proof) | {"reason": reason.value, "named": int(named)}
            change.insert("declined_proofs", row)

    def all(self) -> list[DeclinedProof]:
        """Every one, the oldest first."""
        rows = self._database.rows("SELECT * FROM declined_proofs ORDER BY at, plan")
        return [
            DeclinedProof(**dict(row) | {"reason": Code(row["reason"]), "named": bool(row["named"])})
            for row in rows
        ]

    def check_whole(self) -> None:
        """Insist that every plan is the one that its digest names. Raises InternalError, code `storage`."""
        for one in self.all():
            if not is_whole(one.plan_json, one.plan):
                what = f"study {one.plan[:12]}, stored as proof,"
                raise InternalError(Code.STORAGE, f"the plan of {what} was changed here; restore the state")

    def forget(self, wanted: str) -> DeclinedProof:
        """Let the one go whose plan's digest begins with `wanted` (at least 6 characters), and return it.

        Raises:
            RequestError: code `not-found`, none or several.
        """
        found = [one for one in self.all() if len(wanted) >= 6 and one.plan.startswith(wanted.lower())]
        if len(found) != 1:
            raise RequestError(
                Code.NOT_FOUND,
                f"{len(found)} plans that are stored as proof begin with {wanted!r}; give at least 6 "
                "characters of one digest (eigenveil-site studies lists them)",
            )
        with self._database.transaction() as change:
            change.execute("DELETE FROM declined_proofs WHERE plan = ?", (found[0].plan,))
        return found[0]


def _has_room(proof: DeclinedProof, change: Connection) -> bool:
    (stored,) = change.execute(STORED, ())
    return bool(stored["plans"] < MOST_PROOFS and stored["bytes"] + proof.size <= MOST_PROOF_BYTES)
