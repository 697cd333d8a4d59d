"""Studies as pages show them: values from the database with texts for visitors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from eigenveil.accounting.budget import studies_left
from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.rounds import RoundState
from eigenveil.queries import KINDS
from eigenveil.reporting.loadings import component_loadings, release_warnings
from eigenveil.reporting.trust import trust_text
from eigenveil.study_authorization import signature_statement
from eigenveil_common.storage.database import Row
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.console.access import Visitor
from eigenveil_server.console.page_context import ConsoleData
from eigenveil_server.process import as_datetime
from eigenveil_server.rpc.responses import is_own_study
from eigenveil_server.storage.states import LOADING, NO_CONSENT, ConsentState, StudyState, consents
from eigenveil_server.storage.study_reads import AWAITING_APPROVAL, StoredStudy
from eigenveil_server.storage.submissions import ListedStudy

PAGE = 100
DIGEST_LETTERS = frozenset("0123456789abcdef")
GOOD, BAD, CARE = "good", "bad", "care"
# Texts and tones of the states of a study, and of a site in it.
STATES = {
    StudyState.AWAITING: ("waits for approval", CARE),
    StudyState.RUNNING: ("running", ""),
    StudyState.RELEASED: ("released", GOOD),
    StudyState.FAILED: ("failed", BAD),
    StudyState.CANCELLED: ("cancelled", BAD),
}
SITES = {
    "waiting": ("has not answered yet", ""),
    "waiting for approval": ("waits for a person at the site", CARE),
    "ready": ("is ready and has sent no values yet", ""),
    "answered": ("has answered", GOOD),
    "absent": ("did not answer", BAD),
    ConsentState.UNSTATED.value: ("has not replied yet", ""),
    ConsentState.WAITING.value: ("waits for a person at the site", CARE),
    ConsentState.AGREED.value: ("has agreed", GOOD),
    LOADING: ("has agreed and loads its records", GOOD),
}
ROUNDS = {
    AWAITING_APPROVAL: "",
    RoundState.PLANNED.value: "about to open",
    RoundState.OPEN.value: "open and waits for sites",
    RoundState.FIXED.value: "charged and waits for the masked answers of its sites",
    RoundState.CLOSED.value: "answered; noise is being added",
    RoundState.RELEASED.value: "released",
    RoundState.FAILED.value: "ended without a release",
}
NO_ANSWER = ("waiting", ConsentState.UNSTATED.value, LOADING)  # how the status of a site begins
ROUND_ROWS = (
    "SELECT round, kind, state, absent, (SELECT COUNT(*) FROM attempts a WHERE (a.study, a.round) = "
    "(rounds.study, rounds.round)) AS attempts FROM rounds WHERE study = ? ORDER BY round"
)

SiteLine = tuple[str, str, str, str]  # a site, its status as a text and a tone, and a message to the analyst


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyLine:
    """Study in a list, with its progress; `own` is True if it is the visitor's."""

    study: ListedStudy
    share_spent: Fraction
    rounds: int
    own: bool

    @property
    def released(self) -> bool:
        return self.study.state is StudyState.RELEASED


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a study, visible to all. `sequence` counts its events; `rounds` are rows."""

    line: StudyLine
    sequence: int
    now: str
    waits_for: list[str]
    sites: list[SiteLine]
    rounds: list[Row]


def stored_study(data: ConsoleData, digest: str) -> StoredStudy:
    """Return a study. Raises RequestError: code `not-found`."""
    if len(digest) != 64 or not set(digest) <= DIGEST_LETTERS:
        raise RequestError(Code.NOT_FOUND, "there is no such study; see the list of studies")
    return data.studies.get(digest)


def lines(data: ConsoleData, visitor: Visitor, list_before: str = "") -> list[StudyLine]:
    """Return a page of studies, latest first, before the study of that digest. Raises as `stored_study`."""
    found = data.lists.list_before(list_before, PAGE)
    return [line(data, one, own=is_own_study(visitor.identity, one.analyst)) for one in found]


def under_way(data: ConsoleData) -> list[StudyLine]:
    return [line(data, one) for one in data.lists.in_states(StudyState.AWAITING, StudyState.RUNNING)]


def line(data: ConsoleData, stored: ListedStudy, *, own: bool = False) -> StudyLine:
    return StudyLine(
        study=stored,
        share_spent=Fraction(data.ledger.spent(stored.digest), max(1, stored.micro_rho)),
        rounds=data.studies.rounds(stored.digest),
        own=own,
    )


def page(data: ConsoleData, digest: str, visitor: Visitor) -> dict[str, Any]:
    """Return the template values of a study's page. Raises as `stored_study`. `plan` is None for visitors who
    may not read it; `left` is the number of such studies left in the budget."""
    own = is_own_study(visitor.identity, stored_study(data, digest).analyst)
    found = progress(data, digest, own=own)
    stored = stored_study(data, digest)  # not earlier, as a release that is shown needs its plan
    plan = data.studies.plan_of(stored)
    # As in calls, others may read a study only after its release.
    readable = visitor.operates or own or stored.state is StudyState.RELEASED
    return {
        "progress": found,
        "plan": plan if readable else None,
        "left": studies_left(data.left(), plan.cost),
    }


def sequence(data: ConsoleData, digest: str) -> int:
    """Return the number of events of a study."""
    rows = data.reader.rows("SELECT MAX(sequence) AS last FROM events WHERE study = ?", (digest,))
    return rows[0]["last"] or 0


def progress(data: ConsoleData, digest: str, *, own: bool) -> Progress:
    """Return the progress of a study, with messages of sites only if it is the visitor's `own`."""
    stored, last = stored_study(data, digest), sequence(data, digest)
    events = data.studies.events(digest, last - 1)
    event = events[-1] if events else stored.begun
    stated = event.sites or _consent_statuses(data, stored)
    waiting = [one.site for one in stated if one.status.startswith(NO_ANSWER)]
    return Progress(
        line=line(data, data.lists.get(digest), own=own),
        sequence=last,
        now=now(stored, event),
        waits_for=[] if stored.state.ended else waiting,
        sites=[site_line(one, own=own) for one in stated],
        rounds=data.reader.rows(ROUND_ROWS, (digest,)),
    )


def now(stored: StoredStudy, event: pb.StudyEvent) -> str:
    """Return the current state of a study as a sentence."""
    match stored.state:
        case StudyState.AWAITING:
            return "It waits for the operator to approve it: eigenveil-coordinator approve."
        case StudyState.RELEASED:
            return "It has ended. Its result is released."
        case StudyState.FAILED | StudyState.CANCELLED:
            return f"It has ended without a result: {stored.failure}"
        case StudyState.RUNNING if not event.sites:
            return consent_text(event)
        case StudyState.RUNNING:
            number = event.round + 1
            most = max(event.expected_rounds, number)
            stated = ROUNDS.get(event.round_state, event.round_state)
            tried = f", attempt {event.attempt}," if event.attempt else ""
            return f"Round {number} of at most {most}{tried} is {stated}."


def consent_text(event: pb.StudyEvent) -> str:
    """Return the consent status of a study before its first round as a text [R24]."""
    if not event.consent:
        return "It is offered to its sites. No round opens before each of them has decided."
    if ends := event.consent_ends_unix_ms:
        return f"No round opens before every site has decided, or before {_moment(ends)}."
    if starts := event.starts_unix_ms:
        opens = f"No round opens before {_moment(starts)}: until then a site can withdraw its consent."
        return f"Every site has decided. {opens}"
    if any(one.status == LOADING for one in event.consent):
        return "Every site has decided. The first round opens once sites have loaded their records."
    return "Every site has decided. The first round is about to open."


def _moment(milliseconds: int) -> str:
    return f"{as_datetime(milliseconds):%Y-%m-%d %H:%M} (UTC)"


def _consent_statuses(data: ConsoleData, stored: StoredStudy) -> list[pb.SiteStatus]:
    """Return the consent status of each site of a study."""
    stated, sites = consents(data.reader, stored.digest), data.studies.plan_of(stored).study.federation.sites
    found = [(site, stated.get(site, NO_CONSENT)) for site in sites]
    return [pb.SiteStatus(site=site, status=one.status, text=one.text) for site, one in found]


def site_line(status: pb.SiteStatus, *, own: bool) -> SiteLine:
    """Return the row of a site, for the open or the last round."""
    head, _, reason = (part.strip() for part in status.status.partition(":"))
    if head != "declined":
        return (status.site, *SITES.get(head, (status.status, "")), "")
    if reason in set(DeclineReason):  # a person's
        reason = DeclineReason(reason).sentence
    declined = f"declined: {reason}" if reason else "declined"
    return status.site, declined, BAD, status.text if own else ""


FORMATTERS = {
    "component_loadings": component_loadings,
    "from_json": json.loads,
    "kinds": KINDS,
    "release_warnings": release_warnings,
    "round_states": ROUNDS,
    "signature_statement": signature_statement,
    "states": STATES,
    "trust_text": trust_text,
}
