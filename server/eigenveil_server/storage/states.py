"""States of a study and reasons of a decline, between text, messages and rows. Consent of a site to a study:
unstated, waiting for a person, agreed or declined; it only moves forward [R24]."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from eigenveil.dictionary.site_rules import RULES, DeclineReason, checked_text
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Role
from eigenveil_common.storage.database import Connection, Database
from eigenveil_proto.v1 import eigenveil_pb2 as pb


class StudyState(Enum):
    """State of a study: AWAITING the operator's approval if required, RUNNING until it ends, and three ways
    to end."""

    AWAITING = "awaiting"
    RUNNING = "running"
    RELEASED = "released"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True if the study has ended."""
        return self not in (StudyState.AWAITING, StudyState.RUNNING)

    @property
    def proto(self) -> pb.StudyState.ValueType:
        """Return the same state in a message."""
        name = "AWAITING_APPROVAL" if self is StudyState.AWAITING else self.name
        return pb.StudyState.Value(f"STUDY_STATE_{name}")


DECLINES: dict[int, str] = {
    pb.DECLINE_REASON_POLICY: "policy",
    pb.DECLINE_REASON_BUDGET: "budget",
    pb.DECLINE_REASON_PROTOCOL: "protocol",
    pb.DECLINE_REASON_VERSION: "version",
    pb.DECLINE_REASON_FAILURE: "failure",
}
PERSON_DECLINES: dict[int, DeclineReason] = {
    pb.DeclineReason.Value(f"DECLINE_REASON_PERSON_{one.name}"): one for one in DeclineReason
}


# Other reasons can depend on records, so only the operator sees them. A person's reason is that person's own
# statement.
VISIBLE_REASONS = frozenset({"policy", "budget", "protocol", "version", *DeclineReason})


def shown(declined: str) -> tuple[str, ...]:
    """Return what analysts see of a decline: no reason that the site's records may decide."""
    return ("declined", declined) if declined in VISIBLE_REASONS else ("declined",)


class ConsentState(Enum):
    """Consent states, in the order in which a site may reach them; the values are what analysts read."""

    UNSTATED = "no answer yet"
    WAITING = "waiting for a person"
    AGREED = "agreed"
    DECLINED = "declined"


CONSENT_ORDER = tuple(ConsentState)
LOADING = "loading its records"  # of a site that agreed, where the first query waits for it


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteConsent:
    """One site's consent. `reason` is why it declined, `rule` the rule of the site that forbids the study,
    `text` a person's message; the last two are for the study's analyst and the operator. After a person's
    agreement no query is sent before `starts_at` (Unix milliseconds)."""

    state: ConsentState
    reason: str = ""
    rule: str = ""
    text: str = ""
    starts_at: int = 0

    def follows(self, last: SiteConsent) -> bool:
        """True if this is a later state than `last`; a site cannot go back."""
        return CONSENT_ORDER.index(self.state) > CONSENT_ORDER.index(last.state)

    @property
    def status(self) -> str:
        """Return the consent as analysts see it."""
        return ": ".join(shown(self.reason)) if self.state is ConsentState.DECLINED else self.state.value


NO_CONSENT = SiteConsent(state=ConsentState.UNSTATED)


def parse_decline(request: pb.DeclineRequest) -> tuple[SiteConsent, bool]:
    """Return a site's decline, and True if a person declined. A rule that this version does not know is left
    out. Raises PeerError: no reason, or one that this version does not know; or a text that cannot be
    shown."""
    number, text = request.reason, request.text
    rule = request.rule if number == pb.DECLINE_REASON_POLICY and request.rule in RULES else ""
    if number in DECLINES:
        if text:
            raise PeerError(Code.PROTOCOL, "only a person's decline has a text")
        return SiteConsent(state=ConsentState.DECLINED, reason=DECLINES[number], rule=rule), False
    if number not in PERSON_DECLINES:
        raise PeerError(Code.PROTOCOL, f"decline reason {number} is unknown to this version")
    try:
        text = checked_text(text)
    except RequestError as problem:
        raise PeerError(Code.PROTOCOL, f"the text of a decline: {problem}") from problem
    return SiteConsent(state=ConsentState.DECLINED, reason=PERSON_DECLINES[number].value, text=text), True


def consents(reader: Database, study: str) -> dict[str, SiteConsent]:
    """Return the consents of the sites that have stated one."""
    rows = reader.rows("SELECT * FROM consents WHERE study = ?", (study,))
    return {
        row["site"]: SiteConsent(
            state=ConsentState(row["status"]),
            reason=row["reason"],
            rule=row["rule"],
            text=row["text"],
            starts_at=row["starts_at"],
        )
        for row in rows
    }


def denied_sites(reader: Database) -> frozenset[str]:
    """Return the sites on the deny-list; they can answer nothing."""
    return frozenset(
        row["name"] for row in reader.rows("SELECT name FROM denied WHERE role = ?", (Role.SITE.value,))
    )


def store_consent(change: Connection, study: str, site: str, consent: SiteConsent, at: int) -> None:
    """Store a site's consent in place of the one before."""
    change.execute("DELETE FROM consents WHERE (study, site) = (?, ?)", (study, site))
    row = {
        "study": study,
        "site": site,
        "status": consent.state.value,
        "reason": consent.reason,
        "rule": consent.rule,
        "text": consent.text,
        "starts_at": consent.starts_at,
        "at": at,
    }
    change.insert("consents", row)
