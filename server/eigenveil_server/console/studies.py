"""Studies as pages show them: values from the database with texts for visitors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from eigenveil.accounting.budget import studies_left
from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.rounds import RoundState
from eigenveil.queries import KINDS
from eigenveil.reporting.trust import trust_text
from eigenveil.study.toml import single_tables
from eigenveil.study_authorization import signature_statement
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.console.access import Visitor
from eigenveil_server.console.page_context import ConsoleData
from eigenveil_server.process import as_datetime
from eigenveil_server.rpc.responses import is_own_study
from eigenveil_server.storage.states import NO_CONSENT, ConsentState, StudyState, consents
from eigenveil_server.storage.study_reads import AWAITING_APPROVAL, StoredStudy
from eigenveil_server.storage.submissions import ListedStudy

PAGE = 100
DIGEST_LETTERS = frozenset("0123456789abcdef")
STATES = {
    StudyState.AWAITING: "waits for approval",
    StudyState.RUNNING: "running",
    StudyState.RELEASED: "released",
    StudyState.FAILED: "failed",
    StudyState.CANCELLED: "cancelled",
}
ROUNDS = {
    RoundState.PLANNED.value: "about to open",
    RoundState.OPEN.value: "open and waits for sites",
    RoundState.FIXED.value: "charged and waits for the masked answers of its sites",
    RoundState.CLOSED.value: "answered; noise is being added",
    RoundState.RELEASED.value: "released",
    RoundState.FAILED.value: "ended without a release",
}
SITES = {
    "waiting": "has not answered yet",
    "waiting for approval": "waits for a person at the site",
    "ready": "is ready and has sent no values yet",
    "answered": "has answered",
    "absent": "did not answer",
    ConsentState.UNSTATED.value: "has not replied yet",
    ConsentState.WAITING.value: "waits for a person at the site",
    ConsentState.AGREED.value: "has agreed",
}
GOOD, BAD, CARE = "good", "bad", "care"
SITE_TONES = {
    "answered": GOOD,
    "absent": BAD,
    "waiting for approval": CARE,
    ConsentState.WAITING.value: CARE,
    ConsentState.AGREED.value: GOOD,
}
TONES = {
    StudyState.AWAITING: CARE,
    StudyState.RUNNING: "",
    StudyState.RELEASED: GOOD,
    StudyState.FAILED: BAD,
    StudyState.CANCELLED: BAD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyLine:
    """Row of a study in a list; times in Unix seconds. `price` is the maximal epsilon of the study, `signed`
    names the key that signed it."""

    digest: str
    name: str
    analyst: str
    signed: str
    state: str
    tone: str
    epsilon: float
    share_spent: Fraction
    rounds: int
    expected_rounds: int
    submitted: float
    failure: str
    own: bool
    ended: bool
    released: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteLine:
    """Status of a site in a study; `text` is the message of a person at the site to the analyst."""

    site: str
    status_text: str
    tone: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLine:
    """Row of a round; `number` counts from 1. `absent` maps absent sites to reasons; `attempts` counts the
    charged attempts of a masked round."""

    number: int
    kind: str
    meaning: str
    state: str
    absent: Mapping[str, str]
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a study, visible to all. `sequence` counts its events."""

    line: StudyLine
    sequence: int
    now: str
    waits_for: tuple[str, ...]
    sites: tuple[SiteLine, ...]
    rounds: tuple[RoundLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyDetails:
    """Study as its analyst wrote it."""

    purpose: str
    columns: tuple[str, ...]
    components: int
    delta: float
    sites: tuple[str, ...]
    trust: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPage:
    """Data of a study's page. `question` is None for visitors who may not read it; `left` is the number of
    such studies left in the budget."""

    progress: Progress
    question: StudyDetails | None
    left: int | None

    @property
    def line(self) -> StudyLine:
        return self.progress.line


def stored_study(data: ConsoleData, digest: str) -> StoredStudy:
    """Return a study.

    Raises:
        RequestError: code `not-found`.
    """
    if len(digest) != 64 or not set(digest) <= DIGEST_LETTERS:
        raise RequestError(Code.NOT_FOUND, "there is no such study; see the list of studies")
    return data.studies.get(digest)


def lines(data: ConsoleData, visitor: Visitor, list_before: str = "") -> list[StudyLine]:
    """Return a page of studies, latest first, before the study of that digest.

    Raises:
        RequestError: code `not-found`.
    """
    return [line(data, one, own=is_own(visitor, one)) for one in data.lists.list_before(list_before, PAGE)]


def under_way(data: ConsoleData) -> list[StudyLine]:
    return [line(data, one) for one in data.lists.in_states(StudyState.AWAITING, StudyState.RUNNING)]


def line(data: ConsoleData, stored: ListedStudy, *, own: bool = False) -> StudyLine:
    return StudyLine(
        digest=stored.digest,
        name=stored.name,
        analyst=stored.analyst,
        signed=signature_statement(stored.signer),
        state=STATES[stored.state],
        tone=TONES[stored.state],
        epsilon=stored.summary.epsilon,
        share_spent=Fraction(data.ledger.spent(stored.digest), max(1, stored.micro_rho)),
        rounds=data.studies.rounds(stored.digest),
        expected_rounds=stored.expected_rounds,
        submitted=stored.submitted_at / 1000,
        failure=stored.failure,
        own=own,
        ended=stored.state.ended,
        released=stored.state is StudyState.RELEASED,
    )


def _study(stored: StoredStudy) -> dict[str, Any]:
    stated: dict[str, Any] = json.loads(stored.plan_json)["study"]
    return stated


def page(data: ConsoleData, digest: str, visitor: Visitor) -> StudyPage:
    """Return the data of a study's page. Raises as `stored_study`."""
    stored = stored_study(data, digest)
    return StudyPage(
        progress=progress(data, digest, own=is_own(visitor, stored)),
        question=_question(data, stored) if _may_read(visitor, stored) else None,
        left=studies_left(data.left(), data.studies.plan_of(stored).cost),
    )


def is_own(visitor: Visitor, stored: StoredStudy | ListedStudy) -> bool:
    """Return True if the study is the visitor's own."""
    return is_own_study(visitor.identity, stored.analyst)


def _may_read(visitor: Visitor, stored: StoredStudy) -> bool:
    """Return True if the visitor may read the study: as in calls, others may only after its release."""
    return visitor.operates or is_own(visitor, stored) or stored.state is StudyState.RELEASED


def _question(data: ConsoleData, stored: StoredStudy) -> StudyDetails:
    stated = _study(stored)
    return StudyDetails(
        purpose=stated["purpose"],
        columns=tuple(_column(one) for one in single_tables(stated["columns"])),
        components=stated["components"],
        delta=stated["privacy"]["delta"],
        sites=tuple(stated["federation"]["sites"]),
        trust=trust_text(data.studies.plan_of(stored)),
    )


def _column(stated: Mapping[str, Any]) -> str:
    unit = f" ({stated['unit']})" if stated["unit"] else ""
    return f"{stated['name']}{unit}, {stated['lower']:g} to {stated['upper']:g}"


def sequence(data: ConsoleData, digest: str) -> int:
    """Return the number of events of a study."""
    rows = data.reader.rows("SELECT MAX(sequence) AS last FROM events WHERE study = ?", (digest,))
    return rows[0]["last"] or 0


def progress(data: ConsoleData, digest: str, *, own: bool) -> Progress:
    """Return the progress of a study, with messages to its analyst only if it is their `own`. Raises as
    `stored_study`."""
    stored, last = stored_study(data, digest), sequence(data, digest)
    events = data.studies.events(digest, last - 1)
    event = events[-1] if events else stored.begun
    stated = event.sites or _consent_statuses(data, stored)
    return Progress(
        line=line(data, data.lists.get(digest), own=own),
        sequence=last,
        now=now(stored, event),
        waits_for=() if stored.state.ended else sites_waited_for(stated),
        sites=tuple(site_line(one, own=own) for one in stated),
        rounds=_rounds(data, digest),
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
            stated = (
                ""
                if event.round_state == AWAITING_APPROVAL
                else ROUNDS.get(event.round_state, event.round_state)
            )
            tried = f", attempt {event.attempt}," if event.attempt else ""
            return f"Round {number} of at most {most}{tried} is {stated}."


def consent_text(event: pb.StudyEvent) -> str:
    """Return the consent status of a study before its first round as a text [R24]."""
    if not event.consent:
        return "It is offered to its sites. No round opens before each of them has decided."
    if event.consent_ends_unix_ms:
        return (
            f"No round opens before every site has decided, or before {_moment(event.consent_ends_unix_ms)}."
        )
    if event.starts_unix_ms:
        return (
            "Every site has decided. No round opens before "
            f"{_moment(event.starts_unix_ms)}: until then a site can withdraw its consent."
        )
    return "Every site has decided. The first round is about to open."


def _moment(milliseconds: int) -> str:
    return f"{as_datetime(milliseconds):%Y-%m-%d %H:%M} (UTC)"


def _consent_statuses(data: ConsoleData, stored: StoredStudy) -> list[pb.SiteStatus]:
    """Return the consent status of each site of a study."""
    stated = consents(data.reader, stored.digest)
    words = {site: stated.get(site, NO_CONSENT) for site in _study(stored)["federation"]["sites"]}
    return [pb.SiteStatus(site=site, status=one.status, text=one.text) for site, one in words.items()]


def sites_waited_for(stated: Iterable[pb.SiteStatus]) -> tuple[str, ...]:
    """Return the sites whose reply is still missing."""
    no_answer = ("waiting", ConsentState.UNSTATED.value)
    return tuple(one.site for one in stated if one.status.startswith(no_answer))


def site_line(status: pb.SiteStatus, *, own: bool) -> SiteLine:
    """Return the row of a site, for the open or the last round."""
    head, _, reason = (part.strip() for part in status.status.partition(":"))
    if head == "declined":
        text = status.text if own else ""
        return SiteLine(site=status.site, status_text=declined_text(reason), tone=BAD, text=text)
    tone = SITE_TONES.get(head, "")
    return SiteLine(site=status.site, status_text=SITES.get(head, status.status), tone=tone)


def declined_text(reason: str) -> str:
    """Return the reason of a decline as a text: a person's as a sentence, any other as it is, or none."""
    if reason in set(DeclineReason):
        return f"declined: {DeclineReason(reason).sentence}"
    return f"declined: {reason}" if reason else "declined"


def _rounds(data: ConsoleData, digest: str) -> tuple[RoundLine, ...]:
    rows = data.reader.rows(
        "SELECT round, kind, state, absent, (SELECT COUNT(*) FROM attempts a WHERE (a.study, a.round) = "
        "(rounds.study, rounds.round)) AS attempts FROM rounds WHERE study = ? ORDER BY round",
        (digest,),
    )
    return tuple(
        RoundLine(
            number=row["round"] + 1,
            kind=row["kind"],
            meaning=KINDS[row["kind"]].meaning if row["kind"] in KINDS else "",
            state=ROUNDS.get(row["state"], row["state"]),
            absent=json.loads(row["absent"]),
            attempts=row["attempts"],
        )
        for row in rows
    )
