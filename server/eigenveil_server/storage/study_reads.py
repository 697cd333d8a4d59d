"""Reads of studies and their rounds, as values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

from eigenveil.errors import Code, RequestError
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.protocol.rounds import RoundState
from eigenveil.reporting.document import RoundRecord
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.secure_aggregation.study_keys import SignedStudyKey
from eigenveil.study_authorization import SignedAuthorization, authorization_from_dict
from eigenveil_common.storage.database import Database, Row
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.release_pieces import RELEASE
from eigenveil_server.storage.sealed import (
    OUTLINE,
    SealedRelease,
    check_plan,
    check_query,
    check_release,
    parse_attempt,
    part_of,
    sealed_of,
)
from eigenveil_server.storage.states import ConsentState, StudyState, consents

EVENTS_AT_ONCE = 256
AWAITING_APPROVAL = "waiting for the operator's approval"
PLANS = 16  # cached after parsing
CHECKED = 1024  # studies, and as many rounds, whose releases are read in parts without another check


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStudy:
    """One row of `studies` without its release; times in Unix milliseconds. `stated` is what its sites had
    stated at submission, as JSON. `begun_at` is the time of submission or approval. `authorization_json` is
    its analyst's signature, empty for a study from before signatures."""

    digest: str
    name: str
    analyst: str
    submission: str
    plan_json: bytes
    signature: bytes
    micro_rho: int
    expected_rounds: int
    state: StudyState
    failure: str
    submitted_at: int
    site_rules_json: str = "{}"
    started_at: int = 0
    authorization_json: str = ""

    @property
    def size(self) -> int:
        """Return the bytes that the submitted study takes. The sites' statements count: its analyst chooses
        whom it invites."""
        texts = (self.name, self.submission, self.site_rules_json, self.authorization_json)
        written = len(self.plan_json) + len(self.signature) + self.begun.ByteSize()
        return written + sum(len(one.encode()) for one in texts)

    @property
    def authorization(self) -> SignedAuthorization | None:
        """Return its analyst's signature, which was valid at submission."""
        if not self.authorization_json:
            return None
        return authorization_from_dict(json.loads(self.authorization_json))

    @property
    def signed_plan(self) -> pb.SignedPlan:
        """Return the plan as sites and analysts receive it."""
        signed = pb.SignedPlan(plan_json=self.plan_json, signature=self.signature)
        by_analyst = self.authorization
        if by_analyst is not None:
            signed.authorization.CopyFrom(by_analyst.to_proto())
        return signed

    @property
    def begun(self) -> pb.StudyEvent:
        """Return the event that watchers see before the first round."""
        return pb.StudyEvent(
            state=pb.STUDY_STATE_RUNNING,
            round_state=RoundState.PLANNED.value if self.state is StudyState.RUNNING else AWAITING_APPROVAL,
            micro_rho=self.micro_rho,
            expected_rounds=self.expected_rounds,
        )


COLUMNS = tuple(one.name for one in fields(StoredStudy))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundAnswers:
    """Answers of a round (HMAC of each contribution) and declines (reason)."""

    macs: dict[str, bytes]
    declined: dict[str, str]


class Studies:
    def __init__(self, reader: Database) -> None:
        self._reader = reader
        self._read = lru_cache(maxsize=PLANS)(plan_from_json)
        self._check_once = lru_cache(maxsize=CHECKED)(self._check)
        self._check_round_once = lru_cache(maxsize=CHECKED)(self._check_round)

    def plan(self, plan_json: bytes) -> Plan:
        """Return a stored plan, or one about to be stored. Raises as `plan_from_json`."""
        return self._read(plan_json)

    def plan_of(self, stored: StoredStudy) -> Plan:
        """Return the plan of a study. Raises PeerError: as `plan_from_json`; InternalError: code `storage`:
        it was changed."""
        check_plan(stored.digest, stored.plan_json)
        return self._read(stored.plan_json)

    def all(self) -> list[StoredStudy]:
        """Return every study, oldest first."""
        return self._select("1 = 1 ORDER BY submitted_at, digest", ())

    def get(self, digest: str) -> StoredStudy:
        """Return one study. Raises RequestError: code `not-found`."""
        found = self._select("digest = ?", (digest,))
        if not found:
            raise unknown_study(digest)
        return found[0]

    def under_way(self) -> list[StoredStudy]:
        """Return the studies that run or wait for approval."""
        where = "state IN (?, ?) ORDER BY submitted_at, digest"
        return self._select(where, (StudyState.AWAITING.value, StudyState.RUNNING.value))

    def state(self, digest: str) -> StudyState | None:
        """Return the state of a study; None if there is no such study."""
        rows = self._reader.rows("SELECT state FROM studies WHERE digest = ?", (digest,))
        return StudyState(rows[0]["state"]) if rows else None

    def states(self) -> dict[str, StudyState]:
        """Return the state of every study, by its digest."""
        rows = self._reader.rows("SELECT digest, state FROM studies")
        return {row[0]: StudyState(row[1]) for row in rows}

    def by_submission(self, analyst: str, submission: str) -> StoredStudy | None:
        found = self._select("(analyst, submission) = (?, ?)", (analyst, submission))
        return found[0] if found else None

    def _select(self, where: str, parameters: tuple[object, ...]) -> list[StoredStudy]:
        rows = self._reader.rows(f"SELECT {', '.join(COLUMNS)} FROM studies WHERE {where}", parameters)
        return [StoredStudy(**{**dict(row), "state": StudyState(row["state"])}) for row in rows]

    def release(self, digest: str) -> memoryview | None:
        """Return the signed release, once there is one. Raises InternalError: code `storage`: it was
        changed."""
        data = RELEASE.read(self._reader, (digest,))
        if data is not None:
            check_release(digest, data)
        return data

    def _check(self, digest: str) -> None:
        self.release(digest)

    def release_part(self, digest: str, start: int, most: int) -> tuple[bytes, int] | None:
        """Return up to `most` bytes of the release from byte `start` on, and its size. Raises as `release`,
        at the first part that is read."""
        found = RELEASE.read_part(self._reader, (digest,), start, most)
        if found is not None:
            self._check_once(digest)
        return found

    def sealed_rounds(self, digest: str) -> list[SealedRelease]:
        """Return the sealed releases of a study, in order. Raises InternalError: code `storage`: a stored
        release is not what was sealed."""
        rows = self._reader.rows(f"SELECT {OUTLINE} FROM releases WHERE study = ? ORDER BY round", (digest,))
        return [sealed_of(self._reader, row) for row in rows]

    def sealed(self, digest: str, round: int) -> SealedRelease | None:
        found = self._outlines(digest, round)
        return sealed_of(self._reader, found[0]) if found else None

    def is_sealed(self, digest: str, round: int) -> bool:
        return bool(self._outlines(digest, round))

    def _check_round(self, digest: str, round: int) -> None:
        self.sealed(digest, round)

    def sealed_part(self, digest: str, round: int, start: int, most: int) -> tuple[pb.SealedRound, int]:
        """Return the release of a sealed round with up to `most` bytes of its values from byte `start` on,
        and the bytes of all. Raises as `sealed_rounds`, at the first part that is read."""
        self._check_round_once(digest, round)
        (row,) = self._outlines(digest, round)
        return part_of(self._reader, row, start, most)

    def _outlines(self, digest: str, round: int) -> Sequence[Row]:
        """Return the row of a sealed round without its values; none before it is sealed."""
        selected = f"SELECT {OUTLINE} FROM releases WHERE (study, round) = (?, ?)"
        return self._reader.rows(selected, (digest, round))

    def released(self, digest: str, round: int) -> pb.SealedRound | None:
        """Return the release of a round with its query; None before it is out. Raises InternalError: code
        `storage`: one of them was changed."""
        sealed = self.sealed(digest, round)
        if sealed is None:
            return None
        message = sealed.message()
        message.query.ParseFromString(self.query_bytes(digest, round))
        return message

    def query_bytes(self, digest: str, round: int) -> bytes:
        """Return the stored query of a round, as bytes. Raises as `released`."""
        selected = "SELECT query, query_digest FROM rounds WHERE (study, round) = (?, ?)"
        query_bytes, expected = self._reader.rows(selected, (digest, round))[0]
        check_query(digest, query_bytes, expected)
        return bytes(query_bytes)

    def query_digest(self, digest: str, round: int) -> str | None:
        """Return the digest of the query that was opened as this round, if any."""
        rows = self._reader.rows(
            "SELECT query_digest FROM rounds WHERE (study, round) = (?, ?)", (digest, round)
        )
        return rows[0][0] if rows else None

    def answers(self, digest: str, round: int, attempt: int = 0) -> RoundAnswers:
        """Return the answers of an attempt at a round (0: exact answers), and the declines of the round."""
        rows = self._reader.rows(
            "SELECT attempt, site, mac, declined FROM answers WHERE (study, round) = (?, ?)", (digest, round)
        )
        macs = [row for row in rows if row["attempt"] == attempt and row["mac"] is not None]
        return RoundAnswers(
            macs={row["site"]: row["mac"] for row in macs},
            declined={row["site"]: row["declined"] for row in rows if row["declined"] is not None},
        )

    def attempts(self, digest: str, round: int) -> list[Attempt]:
        """Return the attempts at a masked round, by their numbers. Raises InternalError: code `storage`: one
        is not what was stored."""
        rows = self._reader.rows(
            "SELECT digest, signed_json FROM attempts WHERE (study, round) = (?, ?) ORDER BY number",
            (digest, round),
        )
        return [parse_attempt(digest, row["signed_json"], row["digest"]) for row in rows]

    def study_keys(self, digest: str, wanted: Sequence[str]) -> list[SignedStudyKey]:
        """Return the sites' keys for a masked study that have the digests `wanted`."""
        marks = ", ".join("?" * len(wanted))
        statement = f"SELECT signed_json, signature FROM study_keys WHERE study = ? AND digest IN ({marks})"
        rows = self._reader.rows(statement, (digest, *wanted))
        return [SignedStudyKey(signed_json=row["signed_json"], signature=row["signature"]) for row in rows]

    def keys_of_site(self, digest: str, site: str) -> list[str]:
        """Return the digests of a site's keys for a masked study."""
        statement = "SELECT digest FROM study_keys WHERE (study, site) = (?, ?)"
        return [row["digest"] for row in self._reader.rows(statement, (digest, site))]

    def attempt_number(self, digest: str, round: int, attempt: str) -> int | None:
        """Return the number of the attempt with this digest; None if there is none."""
        where = (digest, round, attempt)
        rows = self._reader.rows(
            "SELECT number FROM attempts WHERE (study, round, digest) = (?, ?, ?)", where
        )
        return rows[0]["number"] if rows else None

    def most_attempts(self, digest: str, first: int, before: int) -> int:
        """Return the highest attempt number of the rounds from `first` on, up to `before`."""
        most = "SELECT COALESCE(MAX(number), 0) FROM attempts WHERE study = ? AND round >= ? AND round < ?"
        return int(self._reader.rows(most, (digest, first, before))[0][0])

    def declined(self, digest: str) -> dict[str, str]:
        """Return the sites that declined the whole study, and why."""
        stated = consents(self._reader, digest).items()
        return {site: one.reason for site, one in stated if one.state is ConsentState.DECLINED}

    def records(self, digest: str) -> list[RoundRecord]:
        """Return what the release states of each round besides its numbers."""
        rows = self._reader.rows(
            "SELECT kind, absent, (SELECT COUNT(*) FROM attempts a WHERE (a.study, a.round) = "
            "(rounds.study, rounds.round)) AS attempts FROM rounds WHERE study = ? ORDER BY round",
            (digest,),
        )
        return [
            RoundRecord(kind=row["kind"], absent=json.loads(row["absent"]), attempts=row["attempts"])
            for row in rows
        ]

    def round_ms(self, digest: str) -> list[int]:
        """Return the milliseconds from the opening of each round to its release; for the operator, never
        published."""
        rows = self._reader.rows(
            "SELECT released_at - opened_at FROM rounds WHERE study = ? AND released_at IS NOT NULL "
            "ORDER BY round",
            (digest,),
        )
        return [max(0, row[0]) for row in rows]

    def rounds(self, digest: str) -> int:
        return self.rounds_of([digest]).get(digest, 0)

    def rounds_of(self, digests: list[str]) -> dict[str, int]:
        """Return the number of rounds of many studies; studies without one are left out."""
        marks = ", ".join("?" * len(digests)) or "NULL"
        counts = f"SELECT study, COUNT(*) FROM rounds WHERE study IN ({marks}) GROUP BY study"
        return {row[0]: row[1] for row in self._reader.rows(counts, tuple(digests))}

    def events(self, digest: str, after: int) -> list[pb.StudyEvent]:
        rows = self._reader.rows(
            "SELECT sequence, event FROM events WHERE study = ? AND sequence > ? ORDER BY sequence LIMIT ?",
            (digest, after, EVENTS_AT_ONCE),
        )
        return [_event(row) for row in rows]


def unknown_study(digest: str) -> RequestError:
    return RequestError(Code.NOT_FOUND, f"there is no study {digest[:12]}; list the studies to see them")


def _event(row: Row) -> pb.StudyEvent:
    event = pb.StudyEvent.FromString(row["event"])
    event.sequence = row["sequence"]
    return event
