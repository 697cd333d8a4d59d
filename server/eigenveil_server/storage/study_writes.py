"""Writes of a study's rows. Each is part of a transaction that the caller opens. A round changes its state by
`_enter` alone, which reads the state table."""

from __future__ import annotations

import json
from collections.abc import Mapping

from eigenveil.errors import Code, RequestError
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import Release, RoundEvent, RoundState, SignedRound, next_state
from eigenveil.queries import NAMES
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil_common.files import failpoint
from eigenveil_common.storage.database import Connection
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.database import audit
from eigenveil_server.storage.release_pieces import NO_PIECES, StoredPieces, publish
from eigenveil_server.storage.sealed import add_release
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import COLUMNS, StoredStudy
from eigenveil_server.storage.submissions import (
    PlanSummary,
    SubmissionQuota,
    add_submission,
    recent_submissions,
)


def add_study(
    change: Connection, stored: StoredStudy, how: str, quota: SubmissionQuota, summary: PlanSummary
) -> None:
    """Store a study and the event that watchers see before its first round; `how` is for the audit. Raises
    RequestError: code `conflict`: this analyst used the submission id before; `quota-exhausted`: it exceeds
    the analyst's daily `quota`."""
    taken = "SELECT 1 FROM studies WHERE (analyst, submission) = (?, ?)"
    if change.execute(taken, (stored.analyst, stored.submission)):
        raise RequestError(
            Code.CONFLICT, f"submission {stored.submission} was used before; choose a new submission id"
        )
    quota.check(recent_submissions(change.execute, stored.analyst, stored.submitted_at), stored.size)
    row = {name: getattr(stored, name) for name in COLUMNS}
    change.insert("studies", {**row, "state": stored.state.value})
    add_submission(change, stored, summary)
    add_event(change, stored.digest, stored.begun)
    audit(change, stored.submitted_at, how, f"analyst/{stored.analyst}", stored.digest)


def add_study_key(change: Connection, row: Mapping[str, object]) -> None:
    """Store a site's key for a study once."""
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    change.execute(
        f"INSERT INTO study_keys ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING", tuple(row.values())
    )


def add_event(change: Connection, study: str, event: pb.StudyEvent) -> None:
    """Append an event; it gets the study's next sequence number, from 1."""
    last = "(SELECT MAX(sequence) FROM events WHERE study = ?)"
    change.execute(
        f"INSERT INTO events VALUES (?, COALESCE({last}, 0) + 1, ?)",
        (study, study, event.SerializeToString()),
    )


def add_round_event(change: Connection, study: str, round: int, event: pb.StudyEvent | None) -> None:
    """Append an event of an open round, if any, unless the round was closed or its next set of sites fixed
    meanwhile: watchers see events in order."""
    if event is None:
        return
    now = (
        "SELECT 1 FROM rounds WHERE (study, round, state) = (?, ?, ?) AND "
        "(SELECT COUNT(*) FROM attempts WHERE (study, round) = (?, ?)) = ?"
    )
    if change.execute(now, (study, round, event.round_state, study, round, event.attempt)):
        add_event(change, study, event)


def add_early_event(change: Connection, study: str, event: pb.StudyEvent) -> None:
    """Append an event from before the first round, unless that is open or the study over."""
    early = (
        "SELECT 1 FROM studies WHERE (digest, state) = (?, ?) AND NOT EXISTS "
        "(SELECT 1 FROM rounds WHERE study = ?)"
    )
    if change.execute(early, (study, StudyState.RUNNING.value, study)):
        add_event(change, study, event)


def _enter(change: Connection, study: str, round: int, event: RoundEvent, **noted: object) -> None:
    """Move a round to the state after `event`, and store its new columns."""
    where = (study, round)
    row = change.execute("SELECT state FROM rounds WHERE (study, round) = (?, ?)", where)[0]
    columns = {"state": next_state(RoundState(row["state"]), event).value, **noted}
    settings = ", ".join(f"{column} = ?" for column in columns)
    change.execute(f"UPDATE rounds SET {settings} WHERE (study, round) = (?, ?)", (*columns.values(), *where))


def open_round(change: Connection, round_query: RoundQuery, message: bytes, at: int) -> None:
    """Store a round's query (`message` is its bytes) and open it, or open it again."""
    study, round, kind = round_query.plan_digest, round_query.round, NAMES[type(round_query.query)]
    change.execute(
        "INSERT INTO rounds (study, round, kind, state, query, query_digest, opened_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (study, round, kind, RoundState.PLANNED.value, message, round_query.digest, at),
    )
    _enter(change, study, round, RoundEvent.DISPATCH)


def store_attempt(change: Connection, attempt: Attempt, at: int) -> None:
    """Store an attempt and its set of sites; there is one for each number, never changed."""
    row = {
        "study": attempt.plan,
        "round": attempt.round,
        "number": attempt.number,
        "digest": attempt.digest,
        "signed_json": attempt.signed_json,
        "at": at,
    }
    change.insert("attempts", row)
    _enter(change, attempt.plan, attempt.round, RoundEvent.FIX)
    failpoint("set-fixing")


def add_answers(change: Connection, study: str, round: int, attempt: int, macs: Mapping[str, bytes]) -> None:
    """Store which sites answered, with an HMAC of each answer; the values are never stored. `attempt` is 0
    for exact answers."""
    if macs:
        change.execute(
            "INSERT INTO answers (study, round, attempt, site, mac) VALUES "
            f"{', '.join(['(?, ?, ?, ?, ?)'] * len(macs))} ON CONFLICT DO NOTHING",
            [value for site, mac in macs.items() for value in (study, round, attempt, site, mac)],
        )


def add_decline(change: Connection, study: str, round: int, site: str, reason: str) -> None:
    """Store that a site will not answer a round, in any attempt, and why."""
    change.execute(
        "INSERT INTO answers (study, round, attempt, site, declined) VALUES (?, ?, 0, ?, ?) "
        "ON CONFLICT (study, round, attempt, site) DO UPDATE SET declined = excluded.declined",
        (study, round, site, reason),
    )


def release_round(
    change: Connection,
    study: str,
    release: Release,
    stated: SignedRound,
    at: int,
    *,
    attempt: int,
    macs: Mapping[str, bytes],
    absent: Mapping[str, str],
    piece_key: bytes | None,
) -> None:
    """Freeze the set of sites of a round, and store its release and statement. Readers see all of it or
    nothing. `piece_key` is what `sealed_pieces.store_ahead` returned."""
    add_answers(change, study, release.round, attempt, macs)
    closed = json.dumps(dict(absent), sort_keys=True)
    closing = RoundEvent.COMPLETE if attempt else RoundEvent.CLOSE
    _enter(change, study, release.round, closing, absent=closed)
    add_release(change, study, release, stated, piece_key)
    _enter(change, study, release.round, RoundEvent.RELEASE, released_at=at)


def begin_study(change: Connection, begun: StoredStudy) -> None:
    """Store that the operator has approved the study and its budget is reserved."""
    row = (begun.state.value, begun.started_at, begun.digest)
    change.execute("UPDATE studies SET (state, started_at) = (?, ?) WHERE digest = ?", row)
    add_event(change, begun.digest, begun.begun)


def end_unstarted(change: Connection, stored: StoredStudy, state: StudyState, at: int, why: str) -> None:
    """Store the last change of a study that is not running, and its event for watchers."""
    end_study(change, stored.digest, state, at, failure=why)
    event = pb.StudyEvent(state=state.proto, micro_rho=stored.micro_rho, failure=why)
    add_event(change, stored.digest, event)


def end_study(
    change: Connection,
    study: str,
    state: StudyState,
    at: int,
    *,
    failure: str = "",
    release: StoredPieces = NO_PIECES,
) -> None:
    """Store the study's last change: its state, and its release or the reason why there is none."""
    change.execute(
        "UPDATE studies SET state = ?, failure = ?, ended_at = ? WHERE digest = ?",
        (state.value, failure, at, study),
    )
    publish(change, study, release)
    left = "SELECT round FROM rounds WHERE study = ? AND state != ?"
    for row in change.execute(left, (study, RoundState.RELEASED.value)):
        _enter(change, study, row["round"], RoundEvent.FAIL)
