"""Declined plans stored whole as proof: the coordinator signed them under an analyst's name, and the
analyst's key did not.

The first `MOST_OF_NAME` of each name stay, `MOST_PROOFS` of at most `MOST_PROOF_BYTES` in all, until a person
deletes them. A plan under a name known here displaces the latest under an unknown name, because names are
easily invented. The bytes prove that the coordinator sent the plan under this name. They do not prove who
made it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.study_authorization import authorization_from_proto
from eigenveil_client.site.state.received_plans import ReceivedPlan, matches_digest
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
    """Declined plan of study `name` under the name of `analyst`, signed by the release key.

    `named`: the analyst is known here. `authorization` is the analyst's signature as received, empty for
    none. `reason` is the error code of the decline, `at` the Unix time of receipt."""

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
        """Return the analyst's name, the plan and the signed bytes as plain values."""
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
        """Return the fields as received: nothing of an invalid signature is parsed."""
        if not self.authorization:
            return None
        authorization = authorization_from_proto(pb.SignedAuthorization.FromString(self.authorization))
        return {
            "signed_json": authorization.signed_json.hex(),
            "signature": authorization.signature.hex(),
            "key_card_json": authorization.card.signed_json.hex(),
            "key_card_signature": authorization.card.signature.hex(),
        }


class DeclinedProofs:
    """Proofs in `database` (whose schema includes `SCHEMA`)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, received: ReceivedPlan, reason: Code, change: Connection, *, analyst: str, named: bool
    ) -> None:
        """Store a plan within the transaction `change`, unless it is stored already or exceeds the limits."""
        proof = DeclinedProof(
            plan=received.plan, name=received.name, analyst=analyst, named=named,
            plan_json=received.plan_json,
            signature=received.signature, authorization=received.authorization, reason=reason, at=received.at,
        )  # fmt: skip
        same = change.execute("SELECT plan FROM declined_proofs WHERE analyst = ?", (analyst,))
        if len(same) >= MOST_OF_NAME or proof.plan in [row["plan"] for row in same]:
            return
        while not (fits := _fits(proof, change)) and named and change.execute(DISPLACED, ()):
            pass
        if fits:
            row = asdict(proof) | {"reason": reason.value, "named": int(named)}
            change.insert("declined_proofs", row)

    def all(self) -> list[DeclinedProof]:
        """Return every proof, the oldest first."""
        rows = self._database.rows("SELECT * FROM declined_proofs ORDER BY at, plan")
        return [
            DeclinedProof(**dict(row) | {"reason": Code(row["reason"]), "named": bool(row["named"])})
            for row in rows
        ]

    def check_whole(self) -> None:
        """Check every plan against its digest. Raises InternalError, code `storage`."""
        for one in self.all():
            if not matches_digest(one.plan_json, one.plan):
                what = f"study {one.plan[:12]}, stored as proof,"
                raise InternalError(Code.STORAGE, f"the plan of {what} was changed here; restore the state")

    def forget(self, wanted: str) -> DeclinedProof:
        """Delete and return the proof whose digest begins with `wanted` (at least 6 characters).

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


def _fits(proof: DeclinedProof, change: Connection) -> bool:
    (stored,) = change.execute(STORED, ())
    return bool(stored["plans"] < MOST_PROOFS and stored["bytes"] + proof.size <= MOST_PROOF_BYTES)
