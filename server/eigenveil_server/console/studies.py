"""Studies as a page shows them: values read from the database, with words for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from eigenveil.accounting.budget import studies_left
from eigenveil.analyst_signature.asked_by import signature_statement
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.round import RoundState
from eigenveil.queries import KINDS
from eigenveil.reporting.trust import trust_words
from eigenveil.study.columns import single_tables
from eigenveil.study.consent import DeclineWord
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.clock import as_datetime
from eigenveil_server.console.desk import Books
from eigenveil_server.console.visitors import Visitor
from eigenveil_server.rpc.answers import asked_by
from eigenveil_server.storage.consents import UNHEARD, Standing, consents
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_lists import ListedStudy
from eigenveil_server.storage.study_reads import WAITING, StoredStudy

PAGE = 100
DIGEST_LETTERS = frozenset("0123456789abcdef")
STATES = {
    StudyState.AWAITING: "waits for the operator",
    StudyState.RUNNING: "under way",
    StudyState.RELEASED: "released",
    StudyState.FAILED: "failed",
    StudyState.CANCELLED: "cancelled",
}
ROUNDS = {
    RoundState.PLANNED.value: "about to be asked",
    RoundState.OPEN.value: "asked, and waits for sites",
    RoundState.FIXED.value: "paid, and waits for the masked answers of its sites",
    RoundState.CLOSED.value: "answered; noise is being added",
    RoundState.RELEASED.value: "released",
    RoundState.FAILED.value: "ended without a release",
}
SITES = {
    "waiting": "has not answered yet",
    "waiting for approval": "a person there decides",
    "ready": "is ready; it has sent no numbers yet",
    "answered": "has answered",
    "absent": "did not answer",
    Standing.SILENT.value: "was not heard of yet",
    Standing.WAITING.value: "a person there decides",
    Standing.AGREED.value: "has agreed",
}
GOOD, BAD, CARE = "good", "bad", "care"
SITE_TONES = {
    "answered": GOOD,
    "absent": BAD,
    "waiting for approval": CARE,
    Standing.WAITING.value: CARE,
    Standing.AGREED.value: GOOD,
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
    """One study in a list; times in Unix seconds. `price` is the epsilon that it may cost, `signed` which
    key signed it."""

    digest: str
    name: str
    analyst: str
    signed: str
    state: str
    tone: str
    price: float
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
    """One site of a study, now; `text` is what a person there wrote to the analyst."""

    site: str
    words: str
    tone: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLine:
    """One round; `number` counts from 1. `absent` says which sites were not in, and why; `attempts` how many
    were paid, if it is masked."""

    number: int
    kind: str
    meaning: str
    state: str
    absent: Mapping[str, str]
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a study is: what everybody may watch. `sequence` counts what happened to it."""

    line: StudyLine
    sequence: int
    now: str
    waits_for: tuple[str, ...]
    sites: tuple[SiteLine, ...]
    rounds: tuple[RoundLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A study as its analyst wrote it."""

    purpose: str
    columns: tuple[str, ...]
    components: int
    delta: float
    sites: tuple[str, ...]
    trust: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPage:
    """A study with how far it is. `question` is None for those who may not read it; `left` is how many more
    studies like it the budget has."""

    progress: Progress
    question: Question | None
    left: int | None

    @property
    def line(self) -> StudyLine:
        return self.progress.line


def stored_study(books: Books, digest: str) -> StoredStudy:
    """One study.

    Raises:
        RequestError: code `not-found`.
    """
    if len(digest) != 64 or not set(digest) <= DIGEST_LETTERS:
        raise RequestError(Code.NOT_FOUND, "there is no such study; list the studies to see them")
    return books.studies.get(digest)


def lines(books: Books, visitor: Visitor, before: str = "") -> list[StudyLine]:
    """A page of studies, the latest first, from before the study of that digest.

    Raises:
        RequestError: code `not-found`.
    """
    return [line(books, one, own=is_own(visitor, one)) for one in books.lists.before(before, PAGE)]


def under_way(books: Books) -> list[StudyLine]:
    return [line(books, one) for one in books.lists.in_states(StudyState.AWAITING, StudyState.RUNNING)]


def line(books: Books, stored: ListedStudy, *, own: bool = False) -> StudyLine:
    return StudyLine(
        digest=stored.digest,
        name=stored.name,
        analyst=stored.analyst,
        signed=signature_statement(stored.signer),
        state=STATES[stored.state],
        tone=TONES[stored.state],
        price=stored.summary.epsilon,
        share_spent=Fraction(books.ledger.spent(stored.digest), max(1, stored.micro_rho)),
        rounds=books.studies.rounds(stored.digest),
        expected_rounds=stored.expected_rounds,
        submitted=stored.submitted_at / 1000,
        failure=stored.failure,
        own=own,
        ended=stored.state.ended,
        released=stored.state is StudyState.RELEASED,
    )


def _study(stored: StoredStudy) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(stored.plan_json)["study"]
    return said


def page(books: Books, digest: str, visitor: Visitor) -> StudyPage:
    """A study with all that its page shows. Raises as `stored_study`."""
    stored = stored_study(books, digest)
    return StudyPage(
        progress=progress(books, digest, own=is_own(visitor, stored)),
        question=_question(books, stored) if _may_read(visitor, stored) else None,
        left=studies_left(books.left(), books.studies.plan_of(stored).cost),
    )


def is_own(visitor: Visitor, stored: StoredStudy | ListedStudy) -> bool:
    """Return whether the study is the visitor's own."""
    return asked_by(visitor.identity, stored.analyst)


def _may_read(visitor: Visitor, stored: StoredStudy) -> bool:
    """As in calls: a release holds the question, and before it others are told none of it."""
    return visitor.operates or is_own(visitor, stored) or stored.state is StudyState.RELEASED


def _question(books: Books, stored: StoredStudy) -> Question:
    said = _study(stored)
    return Question(
        purpose=said["purpose"],
        columns=tuple(_column(one) for one in single_tables(said["columns"])),
        components=said["components"],
        delta=said["privacy"]["delta"],
        sites=tuple(said["federation"]["sites"]),
        trust=trust_words(books.studies.plan_of(stored)),
    )


def _column(said: Mapping[str, Any]) -> str:
    unit = f" ({said['unit']})" if said["unit"] else ""
    return f"{said['name']}{unit}, {said['lower']:g} to {said['upper']:g}"


def sequence(books: Books, digest: str) -> int:
    """How much has happened to a study."""
    rows = books.reader.rows("SELECT MAX(sequence) AS last FROM events WHERE study = ?", (digest,))
    return rows[0]["last"] or 0


def progress(books: Books, digest: str, *, own: bool) -> Progress:
    """How far a study is; what persons wrote to its analyst only if it is their `own`. Raises as
    `stored_study`."""
    stored, last = stored_study(books, digest), sequence(books, digest)
    events = books.studies.events(digest, last - 1)
    event = events[-1] if events else stored.begun
    said = event.sites or _words(books, stored)
    return Progress(
        line=line(books, books.lists.get(digest), own=own),
        sequence=last,
        now=now(stored, event),
        waits_for=() if stored.state.ended else waited_for(said),
        sites=tuple(site_line(one, own=own) for one in said),
        rounds=_rounds(books, digest),
    )


def now(stored: StoredStudy, event: pb.StudyEvent) -> str:
    """Where a study is, in a sentence."""
    match stored.state:
        case StudyState.AWAITING:
            return "It waits until the operator has approved it: eigenveil-coordinator approve."
        case StudyState.RELEASED:
            return "It has ended, and its result is released."
        case StudyState.FAILED | StudyState.CANCELLED:
            return f"It has ended without a result: {stored.failure}"
        case StudyState.RUNNING if not event.sites:
            return consent_words(event)
        case StudyState.RUNNING:
            number = event.round + 1
            most = max(event.expected_rounds, number)
            said = "" if event.round_state == WAITING else ROUNDS.get(event.round_state, event.round_state)
            tried = f", attempt {event.attempt}," if event.attempt else ""
            return f"Round {number} of at most {most}{tried} is {said}."


def consent_words(event: pb.StudyEvent) -> str:
    """What a study waits for before its first round [R24]."""
    if not event.consent:
        return "It is offered to its sites. Nothing is asked before each of them has said its word."
    if event.consent_ends_unix_ms:
        return (
            f"Nothing is asked before every site has said its word, or {_moment(event.consent_ends_unix_ms)}."
        )
    if event.starts_unix_ms:
        return (
            "Every site has said its word. Nothing is asked before "
            f"{_moment(event.starts_unix_ms)}: until then whoever agreed may withdraw."
        )
    return "Every site has said its word; the first round is about to be asked."


def _moment(milliseconds: int) -> str:
    return f"{as_datetime(milliseconds):%Y-%m-%d %H:%M} (UTC)"


def _words(books: Books, stored: StoredStudy) -> list[pb.SiteStatus]:
    """What each site of a study said of it."""
    said = consents(books.reader, stored.digest)
    words = {site: said.get(site, UNHEARD) for site in _study(stored)["federation"]["sites"]}
    return [pb.SiteStatus(site=site, status=one.status, text=one.text) for site, one in words.items()]


def waited_for(said: Iterable[pb.SiteStatus]) -> tuple[str, ...]:
    """Sites that have still to say something."""
    silent = ("waiting", Standing.SILENT.value)
    return tuple(one.site for one in said if one.status.startswith(silent))


def site_line(status: pb.SiteStatus, *, own: bool) -> SiteLine:
    """A site's part in the round that is open, or in the last one."""
    head, _, reason = (part.strip() for part in status.status.partition(":"))
    if head == "declined":
        text = status.text if own else ""
        return SiteLine(site=status.site, words=declined_words(reason), tone=BAD, text=text)
    tone = SITE_TONES.get(head, "")
    return SiteLine(site=status.site, words=SITES.get(head, status.status), tone=tone)


def declined_words(reason: str) -> str:
    """Why a site declined: a person's word as a sentence, any other as it is; nothing if nobody is told."""
    if reason in set(DeclineWord):
        return f"declined: {DeclineWord(reason).sentence}"
    return f"declined: {reason}" if reason else "declined"


def _rounds(books: Books, digest: str) -> tuple[RoundLine, ...]:
    rows = books.reader.rows(
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
