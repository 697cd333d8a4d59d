"""Plans that a site received, and the consent status of each: one row a plan, one table of transitions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import Enum

from eigenveil.dictionary.site_rules import MAX_SIGNER_NAME_LENGTH, DeclineReason, checked_text
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.numerics.encoding import digest as sha256
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.study_authorization import SignedAuthorization, authorization_from_proto
from eigenveil_common.files import failpoint
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_proto.v1 import eigenveil_pb2 as pb

SCHEMA = """
CREATE TABLE studies (
  plan TEXT PRIMARY KEY,
  plan_json BLOB NOT NULL,
  signature BLOB NOT NULL,
  status TEXT NOT NULL,
  reason TEXT NOT NULL,
  records TEXT NOT NULL,
  at INTEGER NOT NULL,
  person TEXT NOT NULL,
  decided_by TEXT NOT NULL,
  decided_at INTEGER NOT NULL,
  reason_code TEXT NOT NULL,
  text TEXT NOT NULL,
  text_disclosed INTEGER NOT NULL,
  authorization BLOB NOT NULL DEFAULT x'',
  decide_until INTEGER NOT NULL DEFAULT 0,
  reminded INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE submissions (
  analyst TEXT NOT NULL,
  submission TEXT NOT NULL,
  plan TEXT NOT NULL,
  until INTEGER,
  PRIMARY KEY (analyst, submission)
) STRICT;
"""


class ConsentStatus(Enum):
    """Consent status of a study: `pending` waits for a person, `accepted` is answered, no other ever is."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"
    ENDED = "ended"


TRANSITIONS: dict[ConsentStatus, frozenset[ConsentStatus]] = {
    ConsentStatus.PENDING: frozenset(ConsentStatus) - {ConsentStatus.PENDING},
    ConsentStatus.ACCEPTED: frozenset({ConsentStatus.WITHDRAWN, ConsentStatus.ENDED}),
    ConsentStatus.DECLINED: frozenset({ConsentStatus.ENDED}),
    ConsentStatus.WITHDRAWN: frozenset({ConsentStatus.ENDED}),
    ConsentStatus.ENDED: frozenset(),
}
REFUSED_TRANSITION = {
    ConsentStatus.PENDING: "still waits here",
    ConsentStatus.ACCEPTED: "was approved before; to take it back: eigenveil-site withdraw",
    ConsentStatus.DECLINED: "was declined before, which is final",
    ConsentStatus.WITHDRAWN: "was withdrawn before, which is final",
    ConsentStatus.ENDED: "has ended; there is nothing left to decide",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonDecision:
    """Decision of a person: the name, and for a decline the reason. `text` stays at this site, unless `told`:
    site.toml allowed sending such texts when it was written. Raises RequestError, code `bad-argument`, for a
    name or text that cannot be shown as it is."""

    by: str
    reason_code: DeclineReason | None = None
    text: str = ""
    text_disclosed: bool = False

    def __post_init__(self) -> None:
        checked_text(self.by, MAX_SIGNER_NAME_LENGTH)
        checked_text(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedPlan:
    """Plan with a verified signature, and the analyst's `authorization` (as received, empty for none).

    `status` is the consent status, `reason` the error code of a refusal, else empty. `records` is a keyed
    digest of the records at the first answer (empty before it); `at` is the Unix time of receipt. `person` is
    the last status that a person set, also after the end (empty: none yet, or the rules decided).
    `decided_by` is that person's name and `decided_at` the time. `reason_code` and `text` are the reason of a
    decline; `text_disclosed` is true if the text may be sent to the analyst. `decide_until` is the Unix time
    until which the coordinator waits for a person here, as it stated with the plan (0: it did not), and
    `reminded` the one that the last reminder was due."""

    plan: str
    plan_json: bytes
    signature: bytes
    status: ConsentStatus
    reason: str = ""
    records: str = ""
    at: int
    person: str = ""
    decided_by: str = ""
    decided_at: int = 0
    reason_code: str = ""
    text: str = ""
    text_disclosed: bool = False
    authorization: bytes = b""
    decide_until: int = 0
    reminded: int = 0

    @property
    def signed(self) -> SignedAuthorization | None:
        """Unchecked signature of the analyst; None if there is none."""
        if not self.authorization:
            return None
        return authorization_from_proto(pb.SignedAuthorization.FromString(self.authorization))

    def read_plan(self) -> Plan:
        """Return the validated plan. Raises as `plan_from_json`."""
        return plan_from_json(self.plan_json)

    def decision_deadline(self, plan: Plan) -> int | None:
        """Return the Unix time before which a person here decides: the earlier of the coordinator's and that
        of `plan`; None if neither is stated."""
        stated = (self.decide_until or math.inf, plan.study.federation.decision_deadline)
        return None if math.isinf(min(stated)) else int(min(stated))

    @property
    def submission_key(self) -> tuple[str, str]:
        """Analyst and submission id; a site runs each pair once."""
        return self.analyst, str(json.loads(self.plan_json)["submission"])

    @property
    def analyst(self) -> str:
        return str(json.loads(self.plan_json)["analyst"])

    @property
    def name(self) -> str:
        return str(json.loads(self.plan_json)["study"]["name"])

    @property
    def is_intact(self) -> bool:
        """True if the plan has its digest."""
        with suppress(ValueError):
            return sha256("plan", json.loads(self.plan_json)) == self.plan
        return False


@dataclass(eq=False)
class ReceivedPlans:
    """Received plans in `database` (whose schema includes `SCHEMA`). `declined` returns the digests of the
    declined plans with a prefix, each with the reason why it is not stored."""

    _database: Database
    _declined: Callable[[str], dict[str, str]]
    _clock: Callable[[], int]

    def all(self) -> list[ReceivedPlan]:
        """Return every received plan, oldest first."""
        return [_plan_from_row(row) for row in self._database.rows("SELECT * FROM studies ORDER BY at, plan")]

    def not_ended(self) -> list[str]:
        """Return the digests of plans whose studies have not ended, oldest first."""
        listed = "SELECT plan FROM studies WHERE status <> ? ORDER BY at, plan"
        return [row["plan"] for row in self._database.rows(listed, (ConsentStatus.ENDED.value,))]

    def get(self, digest: str) -> ReceivedPlan | None:
        rows = self._database.rows("SELECT * FROM studies WHERE plan = ?", (digest,))
        return _plan_from_row(rows[0]) if rows else None

    def status(self, digest: str) -> ConsentStatus | None:
        """Return the consent status of a plan; None if it was never received."""
        rows = self._database.rows("SELECT status FROM studies WHERE plan = ?", (digest,))
        return ConsentStatus(rows[0]["status"]) if rows else None

    def statuses(self, digests: Iterable[str]) -> dict[str, tuple[ConsentStatus, bool]]:
        """Return the present status of each of these plans, and if a person set it; one query."""
        given = "SELECT plan, status, person FROM studies WHERE plan IN (SELECT value FROM json_each(?))"
        rows = self._database.rows(given, (json.dumps(list(digests)),))
        return {row["plan"]: (ConsentStatus(row["status"]), bool(row["person"])) for row in rows}

    def withdrawn(self, digests: Iterable[str]) -> list[str]:
        """Return those of these plans from which a person withdrew, also after the end of their studies."""
        given, withdrawn = json.dumps(list(digests)), ConsentStatus.WITHDRAWN.value
        listed = "SELECT plan FROM studies WHERE plan IN (SELECT value FROM json_each(?))"
        rows = self._database.rows(f"{listed} AND ? IN (status, person)", (given, withdrawn))
        return [row["plan"] for row in rows]

    def find(self, wanted: str, becoming: ConsentStatus | None = None) -> ReceivedPlan:
        """Return the one plan whose digest begins with `wanted` (at least 6 characters), or with this name,
        if its status may become `becoming`. Raises RequestError: code `not-found`, none or several; or as
        `check_transition`."""
        every = self.all()
        starts = [one for one in every if len(wanted) >= 6 and one.plan.startswith(wanted.lower())]
        found = starts or [one for one in every if one.name == wanted]
        if not found:
            self.check_not_declined(wanted)
        if len(found) != 1:
            raise RequestError(
                Code.NOT_FOUND,
                f"{len(found)} plans of this site have a digest that begins with {wanted!r}, or this name. "
                "Give at least 6 characters of one digest (eigenveil-site studies lists them)",
            )
        if becoming is not None:
            check_transition(found[0].plan, found[0].status, becoming)
        return found[0]

    def digest_of(self, wanted: str) -> str:
        """Return the digest of the plan of `find`, or of the one declined plan with this prefix."""
        declined = self._declined_matches(wanted)
        return next(iter(declined)) if len(declined) == 1 else self.find(wanted).plan

    def check_not_declined(self, wanted: str) -> None:
        """Raise RequestError, code `not-found`, if only the digests of plans that begin with `wanted` are
        stored. It says who decided: this site's rules, or nobody here."""
        if reasons := set(self._declined_matches(wanted).values()):
            why = f"{' or '.join(sorted(reasons))}. See the counts: eigenveil-site studies"
            raise RequestError(Code.NOT_FOUND, f"the plan of study {wanted[:12]} is not stored: {why}")

    def _declined_matches(self, wanted: str) -> dict[str, str]:
        return self._declined(wanted.lower()) if len(wanted) >= 6 else {}

    def forget_undecided(self, digest: str, change: Connection, clock: int) -> list[ReceivedPlan]:
        """Delete a plan without a person's decision, within the transaction `change`; return the deleted.

        Its submission id stays used until its signature expires by the `clock`, so that the plan cannot come
        again. Without a signature the id is free, since ids of unsigned plans are easily invented."""
        dropped = "DELETE FROM studies WHERE plan = ? AND person = '' RETURNING *"
        rows = [_plan_from_row(row) for row in change.execute(dropped, (digest,))]
        for received in rows:
            until = 0 if received.signed is None else received.signed.read().expires
            # By plan too: an older database may have one id for two plans, of which the other was answered.
            used = "UPDATE submissions SET until = ? WHERE (analyst, submission, plan) = (?, ?, ?)"
            change.execute(used, (until, *received.submission_key, digest))
            change.execute("DELETE FROM submissions WHERE until <= ?", (clock,))
        return rows

    def decide(
        self,
        received: ReceivedPlan,
        status: ConsentStatus,
        change: Connection,
        person: PersonDecision | None = None,
    ) -> None:
        """Store a new plan that was not declined, or change the status of a pending one; else as
        `set_status`. Raises RequestError: code `conflict`, another plan that was not declined has the same
        submission id."""
        if self.get(received.plan) is None:
            failpoint("plan-storing")
            self._claim_submission(received, change)
            change.insert("studies", asdict(received) | {"status": status.value})
        else:
            self.set_status(received.plan, status, change, person=person)

    @staticmethod
    def _claim_submission(received: ReceivedPlan, change: Connection) -> None:
        """Claim the submission id of a plan, for ever if a message left or a person decided."""
        analyst, submission = received.submission_key
        used = "SELECT 1 FROM submissions WHERE (analyst, submission) = (?, ?)"
        if change.execute(used, received.submission_key):
            raise RequestError(
                Code.CONFLICT,
                f"submission id {submission} of {analyst} was used here for another plan; submit the changed "
                "study under another id",
            )
        change.insert("submissions", {"analyst": analyst, "submission": submission, "plan": received.plan})

    def set_status(
        self,
        digest: str,
        status: ConsentStatus,
        change: Connection,
        reason: str = "",
        person: PersonDecision | None = None,
    ) -> None:
        """Set the status of a plan within the transaction `change`; `person` decided, if given. Raises as
        `check_transition`."""
        check_transition(digest, self._status(digest, change), status)
        change.execute("UPDATE studies SET status = ? WHERE plan = ?", (status.value, digest))
        if reason:
            change.execute("UPDATE studies SET reason = ? WHERE plan = ?", (reason, digest))
        if person is not None:
            columns = (
                "(person, decided_by, decided_at, reason_code, text, text_disclosed) = (?, ?, ?, ?, ?, ?)"
            )
            stated = (person.reason_code or "", person.text, person.text_disclosed)
            values = (status.value, person.by, self._clock(), *stated, digest)
            change.execute(f"UPDATE studies SET {columns} WHERE plan = ?", values)

    def note_reminder(self, digest: str, moment: int) -> bool:
        """Store that the reminder of `moment` is given; False if it was, or the plan is not pending now."""
        noted = (
            "UPDATE studies SET reminded = ? WHERE plan = ? AND status = ? AND reminded < ? RETURNING plan"
        )
        with self._database.transaction() as change:
            rows = change.execute(noted, (moment, digest, ConsentStatus.PENDING.value, moment))
            return bool(rows)

    def require(self, digest: str, status: ConsentStatus, change: Connection) -> None:
        """Require a consent status of a plan, within the transaction `change`; else raise code
        `site-policy`."""
        if (now := self._status(digest, change)) is not status:
            raise RequestError(Code.POLICY, f"this study is {now.value} here")

    def check_whole(self) -> None:
        """Check every plan against its digest. Raises InternalError, code `storage`."""
        for one in self.all():
            if not one.is_intact:
                raise changed_error(f"the plan of study {one.plan[:12]}")

    @staticmethod
    def _status(digest: str, change: Connection) -> ConsentStatus:
        rows = change.execute("SELECT status FROM studies WHERE plan = ?", (digest,))
        if not rows:
            raise RequestError(Code.NOT_FOUND, f"study {digest[:12]} was never received here")
        return ConsentStatus(rows[0]["status"])

    def pin_records(self, digest: str, records: str) -> None:
        """Store the keyed digest of the records at a study's first answer."""
        with self._database.transaction() as change:
            change.execute("UPDATE studies SET records = ? WHERE plan = ?", (records, digest))


def changed_error(what: str) -> InternalError:
    """Return the error for stored data that do not have their digest."""
    return InternalError(Code.STORAGE, f"{what} was changed here; restore the state")


def check_transition(digest: str, now: ConsentStatus, status: ConsentStatus) -> None:
    """Require that the present status of a plan allows this transition; else raise code `conflict`."""
    if status not in TRANSITIONS[now]:
        raise RequestError(Code.CONFLICT, f"study {digest[:12]} {REFUSED_TRANSITION[now]}")


def _plan_from_row(row: Row) -> ReceivedPlan:
    return ReceivedPlan(
        **dict(row) | {"status": ConsentStatus(row["status"]), "text_disclosed": bool(row["text_disclosed"])}
    )
