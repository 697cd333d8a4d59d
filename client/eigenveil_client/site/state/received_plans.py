"""The plans that a site has seen, and what was decided about each: one row a plan, one table of moves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import Enum

from eigenveil.analyst_signature.authorization import SignedAuthorization, authorization_from_proto
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.numerics.encoding import digest as sha256
from eigenveil.study.consent import LONGEST_NAME, DeclineWord, checked_text
from eigenveil_client.site.state.declined_plans import DeclinedPlans
from eigenveil_common.failpoints import failpoint
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_proto.v1 import eigenveil_pb2 as pb

SCHEMA = """
CREATE TABLE studies (
  plan TEXT PRIMARY KEY,
  plan_json BLOB NOT NULL,
  signature BLOB NOT NULL,
  standing TEXT NOT NULL,
  reason TEXT NOT NULL,
  records TEXT NOT NULL,
  at INTEGER NOT NULL,
  person TEXT NOT NULL,
  said_by TEXT NOT NULL,
  said_at INTEGER NOT NULL,
  word TEXT NOT NULL,
  text TEXT NOT NULL,
  told INTEGER NOT NULL,
  authorization BLOB NOT NULL DEFAULT x''
) STRICT;
CREATE TABLE submissions (
  analyst TEXT NOT NULL,
  submission TEXT NOT NULL,
  plan TEXT NOT NULL,
  until INTEGER,
  PRIMARY KEY (analyst, submission)
) STRICT;
"""
# From before plans were signed by their analysts: what was seen under an id keeps it.
SIGNED_PLANS = """
ALTER TABLE studies ADD COLUMN authorization BLOB NOT NULL DEFAULT x'';
CREATE TABLE submissions (
  analyst TEXT NOT NULL,
  submission TEXT NOT NULL,
  plan TEXT NOT NULL,
  PRIMARY KEY (analyst, submission)
) STRICT;
INSERT OR IGNORE INTO submissions
  SELECT json_extract(CAST(plan_json AS TEXT), '$.analyst'),
    json_extract(CAST(plan_json AS TEXT), '$.submission'), plan
  FROM studies WHERE standing != 'declined' ORDER BY at, plan;
"""
# From before an id was stored with the end of its signature.
ENDING_IDS = "ALTER TABLE submissions ADD COLUMN until INTEGER;"


class Decision(Enum):
    """`pending` waits for a person's word; `accepted` is answered; the others never again."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"
    ENDED = "ended"


MOVES: dict[Decision, frozenset[Decision]] = {
    Decision.PENDING: frozenset({Decision.ACCEPTED, Decision.DECLINED, Decision.WITHDRAWN, Decision.ENDED}),
    Decision.ACCEPTED: frozenset({Decision.WITHDRAWN, Decision.ENDED}),
    Decision.DECLINED: frozenset({Decision.ENDED}),
    Decision.WITHDRAWN: frozenset({Decision.ENDED}),
    Decision.ENDED: frozenset(),
}
DECIDED = {
    Decision.PENDING: "still waits here",
    Decision.ACCEPTED: "was approved before; eigenveil-site withdraw takes that back",
    Decision.DECLINED: "was declined before, and that is for good",
    Decision.WITHDRAWN: "was withdrawn before, and that is for good",
    Decision.ENDED: "is over; there is nothing left to decide",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonsWord:
    """A decision as a person states it: who says so, and of a decline the reason. `text` stays here, unless
    site.toml says as it is written that reasons are told, which is `told`.

    Raises:
        RequestError: code `bad-argument`, name or text cannot be shown as they are.
    """

    by: str
    word: DeclineWord | None = None
    text: str = ""
    told: bool = False

    def __post_init__(self) -> None:
        checked_text(self.by, LONGEST_NAME)
        checked_text(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedPlan:
    """A plan whose signature was verified, and the analyst's `authorization` that came with it (as it
    travels, empty for none). `reason` is the error code of a refusal, else empty.

    `records` is a keyed digest of the records the study began with (empty before the first answer); `at` is
    the Unix time at which the plan came; `person` is the last standing that a person gave it, also after
    its end (empty: the rules decided alone, or nobody yet), `said_by` who that was and `said_at` when; `word`
    and `text` are why that person declined it, and `told` whether the text was written to be told.
    """

    plan: str
    plan_json: bytes
    signature: bytes
    standing: Decision
    reason: str = ""
    records: str = ""
    at: int
    person: str = ""
    said_by: str = ""
    said_at: int = 0
    word: str = ""
    text: str = ""
    told: bool = False
    authorization: bytes = b""

    @property
    def signed(self) -> SignedAuthorization | None:
        """The analyst's signature under it, to be checked; None if there is none."""
        if not self.authorization:
            return None
        return authorization_from_proto(pb.SignedAuthorization.FromString(self.authorization))

    @property
    def run(self) -> tuple[str, str]:
        """Analyst and submission: what a site runs once."""
        stated = json.loads(self.plan_json)
        return str(stated["analyst"]), str(stated["submission"])

    @property
    def name(self) -> str:
        return str(json.loads(self.plan_json)["study"]["name"])

    @property
    def whole(self) -> bool:
        """Whether the plan is the one that its digest names."""
        return is_whole(self.plan_json, self.plan)


def is_whole(plan_json: bytes, digest: str) -> bool:
    """Whether a stored plan is the one that its digest names."""
    try:
        return sha256("plan", json.loads(plan_json)) == digest
    except ValueError:
        return False


class ReceivedPlans:
    """The rows in `database` (whose schema includes `SCHEMA`)."""

    def __init__(self, database: Database, declined: DeclinedPlans, clock: Callable[[], int]) -> None:
        self._database = database
        self._declined = declined
        self._clock = clock

    def all(self) -> list[ReceivedPlan]:
        """Every plan seen, oldest first."""
        return [_seen(row) for row in self._database.rows("SELECT * FROM studies ORDER BY at, plan")]

    def not_ended(self) -> list[str]:
        """The digests of those whose studies are not over, oldest first; no plan is read."""
        listed = "SELECT plan FROM studies WHERE standing <> ? ORDER BY at, plan"
        return [row["plan"] for row in self._database.rows(listed, (Decision.ENDED.value,))]

    def get(self, digest: str) -> ReceivedPlan | None:
        rows = self._database.rows("SELECT * FROM studies WHERE plan = ?", (digest,))
        return _seen(rows[0]) if rows else None

    def standing(self, digest: str) -> Decision | None:
        """What was decided about a plan; None for one that was never seen."""
        rows = self._database.rows("SELECT standing FROM studies WHERE plan = ?", (digest,))
        return Decision(rows[0]["standing"]) if rows else None

    def words(self, digests: Iterable[str]) -> dict[str, tuple[Decision, bool]]:
        """What was decided about each of these plans as of now, and whether a person did; one query."""
        asked = "SELECT plan, standing, person FROM studies WHERE plan IN (SELECT value FROM json_each(?))"
        rows = self._database.rows(asked, (json.dumps(list(digests)),))
        return {row["plan"]: (Decision(row["standing"]), bool(row["person"])) for row in rows}

    def find(self, wanted: str) -> ReceivedPlan:
        """The one plan whose digest begins with `wanted` (at least 6 characters), or whose name it is.

        Raises:
            RequestError: code `not-found`, none or several.
        """
        every = self.all()
        starts = [seen for seen in every if len(wanted) >= 6 and seen.plan.startswith(wanted.lower())]
        found = starts or [seen for seen in every if seen.name == wanted]
        if not found and self._declined_alike(wanted):
            raise RequestError(
                Code.NOT_FOUND,
                f"study {wanted[:12]} was declined by the rules of this site, or ended before it was decided "
                "about: only its digest is stored, and no plan (eigenveil-site studies shows the counts)",
            )
        if len(found) != 1:
            raise RequestError(
                Code.NOT_FOUND,
                f"{len(found)} plans of this site begin with {wanted!r} or have it as their name; "
                "give at least 6 characters of one digest (eigenveil-site studies lists them)",
            )
        return found[0]

    def digest_of(self, wanted: str) -> str:
        """The digest of the plan that `find` finds, or of the one declined plan that begins so. Raises as
        `find`."""
        declined = self._declined_alike(wanted)
        return declined[0] if len(declined) == 1 else self.find(wanted).plan

    def _declined_alike(self, wanted: str) -> list[str]:
        return self._declined.starting(wanted.lower()) if len(wanted) >= 6 else []

    def forget_undecided(self, digest: str, change: Connection, clock: int) -> bytes | None:
        """Drop a plan about which no person decided, within the transaction `change`; the plan, if so.

        Its id stays used until its signature has ended by the `clock`, so that the same cannot come again;
        without a signature it is free, as whoever made the plan up may as well make up another id.
        """
        dropped = "DELETE FROM studies WHERE plan = ? AND person = '' RETURNING *"
        rows = [_seen(row) for row in change.execute(dropped, (digest,))]
        for seen in rows:
            until = 0 if seen.signed is None else seen.signed.read().expires
            # Of this plan: one from before ids ran once may have the id of another, which was answered.
            used = "UPDATE submissions SET until = ? WHERE (analyst, submission, plan) = (?, ?, ?)"
            change.execute(used, (until, *seen.run, digest))
            change.execute("DELETE FROM submissions WHERE until <= ?", (clock,))
        return rows[0].plan_json if rows else None

    def decide(
        self, seen: ReceivedPlan, standing: Decision, change: Connection, *, person: PersonsWord | None = None
    ) -> None:
        """Remember a plan that is new here and was not declined, or move one that waits. Otherwise as `move`.

        Raises:
            RequestError: code `conflict`, another plan that was not declined has the id of its submission.
        """
        if self.get(seen.plan) is None:
            failpoint("plan-storing")
            self._use_id(seen, change)
            change.insert("studies", asdict(seen) | {"standing": standing.value})
        else:
            self.move(seen.plan, standing, change, person=person)

    @staticmethod
    def _use_id(seen: ReceivedPlan, change: Connection) -> None:
        """An id runs once: what was not declined keeps it, for ever if anything left or a person decided."""
        used = "SELECT 1 FROM submissions WHERE (analyst, submission) = (?, ?)"
        if change.execute(used, seen.run):
            analyst, submission = seen.run
            raise RequestError(
                Code.CONFLICT,
                f"submission {submission} of {analyst} was used here for another plan; a study that is "
                "changed needs an id of its own",
            )
        analyst, submission = seen.run
        change.insert("submissions", {"analyst": analyst, "submission": submission, "plan": seen.plan})

    def move(
        self,
        digest: str,
        standing: Decision,
        change: Connection,
        reason: str = "",
        *,
        person: PersonsWord | None = None,
    ) -> None:
        """Decide about a plan, within the transaction `change`; by the word of `person`, if there was one.

        Raises:
            RequestError: as `check_move`.
        """
        check_move(digest, self._standing(digest, change), standing)
        change.execute("UPDATE studies SET standing = ? WHERE plan = ?", (standing.value, digest))
        if reason:
            change.execute("UPDATE studies SET reason = ? WHERE plan = ?", (reason, digest))
        if person is not None:
            by, word = (standing.value, person.by, self._clock()), person.word or ""
            columns = "(person, said_by, said_at, word, text, told) = (?, ?, ?, ?, ?, ?)"
            said = (*by, word, person.text, person.told, digest)
            change.execute(f"UPDATE studies SET {columns} WHERE plan = ?", said)

    def require(self, digest: str, standing: Decision, change: Connection) -> None:
        """Insist on what was decided about a plan, within the transaction `change`.

        Raises:
            RequestError: code `site-policy`: it is not so any more.
        """
        now = self._standing(digest, change)
        if now is not standing:
            raise RequestError(Code.POLICY, f"this study is {now.value} here")

    def check_whole(self) -> None:
        """Insist that every plan is the one that its digest names.

        Raises:
            InternalError: code `storage`.
        """
        for seen in self.all():
            if not seen.whole:
                raise InternalError(
                    Code.STORAGE, f"the plan of study {seen.plan[:12]} was changed here; restore the state"
                )

    @staticmethod
    def _standing(digest: str, change: Connection) -> Decision:
        rows = change.execute("SELECT standing FROM studies WHERE plan = ?", (digest,))
        if not rows:
            raise RequestError(Code.NOT_FOUND, f"study {digest[:12]} was never seen here")
        return Decision(rows[0]["standing"])

    def keep_records(self, digest: str, records: str) -> None:
        """Note the keyed digest of the records that a study began with."""
        with self._database.transaction() as change:
            change.execute("UPDATE studies SET records = ? WHERE plan = ?", (records, digest))


def check_move(digest: str, now: Decision, standing: Decision) -> None:
    """Insist that a plan may come from one standing to another.

    Raises:
        RequestError: code `conflict`: what was decided before does not allow it.
    """
    if standing not in MOVES[now]:
        raise RequestError(Code.CONFLICT, f"study {digest[:12]} {DECIDED[now]}")


def _seen(row: Row) -> ReceivedPlan:
    return ReceivedPlan(**dict(row) | {"standing": Decision(row["standing"]), "told": bool(row["told"])})
