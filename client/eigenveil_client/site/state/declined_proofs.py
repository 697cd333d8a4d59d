"""Declined plans stored whole as proof: the coordinator signed them under an analyst's name, and the
analyst's key did not.

The first `MOST_OF_NAME` of each name stay, `MOST_PROOFS` of at most `MOST_PROOF_BYTES` in all, until a person
deletes them. A plan under a name known here displaces the latest under an unknown name, because names are
easily invented. The bytes prove that the coordinator sent the plan under this name. They do not prove who
made it."""

from __future__ import annotations

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil_client.site.state.received_plans import ConsentStatus, ReceivedPlan
from eigenveil_common.storage.database import Connection, Database

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
RECEIVED = ("plan", "plan_json", "signature", "authorization", "at")
STORED = (
    "SELECT COUNT(*) AS plans, COALESCE(SUM(LENGTH(plan_json) + LENGTH(signature) + LENGTH(authorization)), "
    "0) AS bytes FROM declined_proofs"
)
DISPLACED = (
    "DELETE FROM declined_proofs WHERE plan = "
    "(SELECT plan FROM declined_proofs WHERE named = 0 ORDER BY at DESC, plan LIMIT 1) RETURNING plan"
)


class DeclinedProofs:
    """Proofs in `database` (whose schema includes `SCHEMA`)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, proof: ReceivedPlan, reason: Code, change: Connection, *, named: bool) -> None:
        """Store a plan within the transaction `change`, unless it is stored already or exceeds the limits.
        `named`: its analyst is known here."""
        same = change.execute("SELECT plan FROM declined_proofs WHERE analyst = ?", (proof.analyst,))
        if len(same) >= MOST_OF_NAME or proof.plan in [row["plan"] for row in same]:
            return
        while not (fits := _fits(proof, change)) and named and change.execute(DISPLACED, ()):
            pass
        if fits:
            stated = {"name": proof.name, "analyst": proof.analyst, "reason": reason.value}
            received = {name: getattr(proof, name) for name in RECEIVED}
            change.insert("declined_proofs", stated | received | {"named": int(named)})

    def all(self) -> list[ReceivedPlan]:
        """Return every proof, with the error code of its decline, the oldest first."""
        columns = ", ".join(RECEIVED)
        return [
            ReceivedPlan(status=ConsentStatus.DECLINED, **dict(row))
            for row in self._database.rows(f"SELECT {columns}, reason FROM declined_proofs ORDER BY at, plan")
        ]

    def check_whole(self) -> None:
        """Check every plan against its digest. Raises InternalError, code `storage`."""
        for one in self.all():
            if not one.is_intact:
                what = f"study {one.plan[:12]}, stored as proof,"
                raise InternalError(Code.STORAGE, f"the plan of {what} was changed here; restore the state")

    def forget(self, wanted: str) -> ReceivedPlan:
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


def _fits(proof: ReceivedPlan, change: Connection) -> bool:
    (stored,) = change.execute(STORED, ())
    size = len(proof.plan_json) + len(proof.signature) + len(proof.authorization)
    return bool(stored["plans"] < MOST_PROOFS and stored["bytes"] + size <= MOST_PROOF_BYTES)
