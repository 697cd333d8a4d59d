"""Submissions of each analyst: one row of fixed size for each study, the daily quota, and lists of studies.

A row is stored in the study's transaction. The daily quota is counted from these rows, so that no restart
resets it and no two concurrent submissions exceed it. Lists of studies are read from these rows and from
indexes, without plans, signatures or releases.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import digest
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_server.config import Config
from eigenveil_server.process import as_datetime
from eigenveil_server.storage.sealed import check_plan
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy

DAY_MS = 24 * 3_600_000
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """Plan columns for lists: the digest of its study alone (`study_toml.study_digest`), its epsilon, and
    what its mechanisms may add to delta with every allowed attempt."""

    content: bytes
    atto_delta: int
    epsilon: float


def summary_of(plan_json: bytes) -> PlanSummary:
    """Return the summary of a checked plan."""
    summary_columns = json.loads(plan_json)
    privacy = summary_columns["study"]["privacy"]
    return PlanSummary(
        content=bytes.fromhex(digest("study", summary_columns["study"])),
        atto_delta=privacy.get("attempts", 1) * int(summary_columns["atto_delta"]),  # absent in old plans
        epsilon=privacy["epsilon"],
    )


def add_submission(change: Connection, stored: StoredStudy, summary: PlanSummary | None) -> None:
    """Store the submission of a study, within the study's transaction."""
    summary_columns = (None, None, None) if summary is None else _columns(summary)
    signed = stored.authorization
    signer = "" if signed is None else signed.card.check().fingerprint
    row = (stored.digest, stored.analyst, stored.submitted_at, stored.size, *summary_columns, signer)
    change.execute("INSERT INTO submissions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def _columns(summary: PlanSummary) -> tuple[str, str, float]:
    return summary.content.hex(), str(summary.atto_delta), summary.epsilon


def summary_from(row: Row) -> PlanSummary | None:
    """Return the summary in a row of `submissions`; None for a study from before that table."""
    if row["content"] is None:
        return None
    return PlanSummary(
        content=bytes.fromhex(row["content"]), atto_delta=int(row["atto_delta"]), epsilon=row["epsilon"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionQuota:
    """Limit on one analyst's submissions in any 24 hours: number and bytes (`StoredStudy.size`). Refused
    studies do not count; cancelled and failed ones do.

    The time is the coordinator's. If its clock is set back, earlier submissions count until the clock has
    passed them by a day: never more in a day than the quota.
    """

    studies: int
    bytes: int

    @classmethod
    def of(cls, config: Config) -> SubmissionQuota:
        """Return the quota in the configuration."""
        size = int(config.max_submitted_mib_per_day * MIB)
        return cls(studies=config.max_submissions_per_day, bytes=size)

    def check(self, rows: Sequence[Row], size: int) -> None:
        """Raise unless one more study of `size` bytes is within the quota; `rows` are those of
        `RECENT_SUBMISSIONS`.

        Raises:
            RequestError: code `quota-exhausted`, with the time from which it would be.
        """
        if size > self.bytes:
            raise RequestError(
                Code.QUOTA,
                f"this study takes {size / MIB:.2f} MiB, with its plan and what its sites state, and the "
                f"operator lets one analyst submit {self.bytes / MIB:g} MiB a day "
                "(max_submitted_mib_per_day); nothing was stored: choose fewer columns or sites",
            )
        count, stored = len(rows), sum(row["bytes"] for row in rows)
        over = count + 1 > self.studies, stored + size > self.bytes
        if not any(over):
            return
        key, most = (
            ("max_submissions_per_day", f"{self.studies} studies")
            if over[0]
            else ("max_submitted_mib_per_day", f"{self.bytes / MIB:g} MiB")
        )
        free_at = as_datetime(self._free_at(rows, size)).replace(microsecond=0)
        raise RequestError(
            Code.QUOTA,
            f"you submitted {count} studies of {stored / MIB:.2f} MiB in the last 24 hours, and the operator "
            f"allows {most} ({key}); nothing was stored: submit it after {free_at:%Y-%m-%d %H:%M:%S} (UTC)",
        )

    def _free_at(self, rows: Sequence[Row], size: int) -> int:
        """Return the time when enough of these rows, oldest first, are a day old. Unix milliseconds."""
        count, stored = len(rows), sum(row["bytes"] for row in rows)
        for row in rows:
            count, stored = count - 1, stored - row["bytes"]
            if count < self.studies and stored + size <= self.bytes:
                return int(row["at"]) + DAY_MS + 999  # in whole seconds, never too early
        raise AssertionError("a study that fits an empty quota fits once all rows are gone")


RECENT_SUBMISSIONS = "SELECT at, bytes FROM submissions WHERE analyst = ? AND at > ? ORDER BY at"


def check_in_transaction(
    change: Connection, quota: SubmissionQuota, analyst: str, size: int, now: int
) -> None:
    """Check the quota within the transaction that stores the study. Raises as `SubmissionQuota.check`."""
    quota.check(change.execute(RECENT_SUBMISSIONS, (analyst, now - DAY_MS)), size)


def check_early(reader: Database, quota: SubmissionQuota, analyst: str, now: int) -> None:
    """Check that the quota allows another study at all, before it is planned. Raises as
    `SubmissionQuota.check`."""
    quota.check(reader.rows(RECENT_SUBMISSIONS, (analyst, now - DAY_MS)), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalystUsage:
    """Submissions of one analyst, in the last 24 hours and in all. `unstarted_bytes` are the bytes of
    studies without a round."""

    analyst: str
    studies_today: int
    bytes_today: int
    studies: int
    bytes: int
    unstarted_bytes: int


def analyst_usage(reader: Database, now: int) -> list[AnalystUsage]:
    """Return the usage of each analyst who ever submitted a study, by name; no plan is read."""
    rows = reader.rows(
        "SELECT p.analyst AS analyst, COUNT(*) AS studies, SUM(p.bytes) AS bytes, "
        "SUM(CASE WHEN p.at > ? THEN 1 ELSE 0 END) AS studies_today, "
        "SUM(CASE WHEN p.at > ? THEN p.bytes ELSE 0 END) AS bytes_today, "
        "SUM(CASE WHEN EXISTS (SELECT 1 FROM rounds r WHERE r.study = p.study) THEN 0 ELSE p.bytes END) "
        "AS unstarted_bytes FROM submissions p GROUP BY p.analyst ORDER BY p.analyst",
        (now - DAY_MS, now - DAY_MS),
    )
    return [
        AnalystUsage(
            analyst=row["analyst"],
            studies_today=int(row["studies_today"]),  # PostgreSQL sums are decimals
            bytes_today=int(row["bytes_today"]),
            studies=int(row["studies"]),
            bytes=int(row["bytes"]),
            unstarted_bytes=int(row["unstarted_bytes"]),
        )
        for row in rows
    ]


LIST_COLUMNS = (  # in the index `studies_by_time` of tables.sqlite.sql, without the plan
    "s.digest, s.name, s.analyst, s.submission, s.micro_rho, s.expected_rounds, s.state, s.failure, "
    "s.submitted_at, p.content, p.atto_delta, p.epsilon, p.signer"
)
LIST_QUERY = f"SELECT {LIST_COLUMNS} FROM studies s LEFT JOIN submissions p ON p.study = s.digest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedStudy:
    """One stored study in a list; `submitted_at` in Unix milliseconds. `signer` is the fingerprint of the key
    that signed it, empty for none."""

    digest: str
    name: str
    analyst: str
    submission: str
    micro_rho: int
    expected_rounds: int
    state: StudyState
    failure: str
    submitted_at: int
    signer: str
    summary: PlanSummary


class StudyLists:
    """Lists of studies from `reader`, on any thread."""

    def __init__(self, reader: Database) -> None:
        self._reader = reader
        self._old_summaries: dict[str, PlanSummary] = {}  # of studies from before the table of submissions

    def list_after(self, after: str, most: int) -> list[ListedStudy]:
        """Return `most` studies after the study `after` (from the first, if that is empty), oldest first.

        Raises:
            RequestError: code `not-found`.
        """
        at = self._position(after) if after else (-1, "")
        where = "WHERE (s.submitted_at, s.digest) > (?, ?) ORDER BY s.submitted_at, s.digest LIMIT ?"
        return self._listed(where, (*at, most))

    def list_before(self, below: str, most: int) -> list[ListedStudy]:
        """Return `most` studies before the study `below` (from the last, if that is empty), latest first.
        Raises as `list_after`."""
        latest = "ORDER BY s.submitted_at DESC, s.digest DESC LIMIT ?"
        if not below:
            return self._listed(latest, (most,))
        return self._listed(
            f"WHERE (s.submitted_at, s.digest) < (?, ?) {latest}", (*self._position(below), most)
        )

    def get(self, digest: str) -> ListedStudy:
        """Return one study. Raises as `list_after`."""
        found = self._listed("WHERE s.digest = ?", (digest,))
        if not found:
            raise _unknown(digest)
        return found[0]

    def latest(self, most: int, states: Iterable[StudyState]) -> list[ListedStudy]:
        """Return at most so many studies in these states, latest first."""
        wanted = [state.value for state in states]
        marks = ", ".join("?" * len(wanted))
        where = f"WHERE s.state IN ({marks}) ORDER BY s.submitted_at DESC, s.digest DESC LIMIT ?"
        return self._listed(where, (*wanted, most))

    def of_analyst(self, analyst: str, states: Iterable[StudyState]) -> list[ListedStudy]:
        """Return one analyst's studies in these states, latest first."""
        wanted = [state.value for state in states]
        marks = ", ".join("?" * len(wanted))
        where = f"WHERE s.analyst = ? AND s.state IN ({marks}) ORDER BY s.submitted_at DESC, s.digest DESC"
        return self._listed(where, (analyst, *wanted))

    def in_states(self, *states: StudyState) -> list[ListedStudy]:
        """Return all studies in these states, oldest first."""
        marks = ", ".join("?" * len(states))
        where = f"WHERE s.state IN ({marks}) ORDER BY s.submitted_at, s.digest"
        return self._listed(where, tuple(state.value for state in states))

    def _position(self, digest: str) -> tuple[int, str]:
        rows = self._reader.rows("SELECT at FROM submissions WHERE study = ?", (digest,))
        if not rows:
            raise _unknown(digest)
        return rows[0]["at"], digest

    def _listed(self, where: str, parameters: tuple[object, ...]) -> list[ListedStudy]:
        return [self._listed_study(row) for row in self._reader.rows(f"{LIST_QUERY} {where}", parameters)]

    def _listed_study(self, row: Row) -> ListedStudy:
        return ListedStudy(
            digest=row["digest"],
            name=row["name"],
            analyst=row["analyst"],
            submission=row["submission"],
            micro_rho=row["micro_rho"],
            expected_rounds=row["expected_rounds"],
            state=StudyState(row["state"]),
            failure=row["failure"],
            submitted_at=row["submitted_at"],
            signer=row["signer"] or "",
            summary=summary_from(row) or self._read(row["digest"]),
        )

    def _read(self, digest: str) -> PlanSummary:
        if digest not in self._old_summaries:
            plan_json = self._reader.rows("SELECT plan_json FROM studies WHERE digest = ?", (digest,))[0][0]
            check_plan(digest, plan_json)
            self._old_summaries[digest] = summary_of(plan_json)
        return self._old_summaries[digest]


def _unknown(digest: str) -> RequestError:
    return RequestError(Code.NOT_FOUND, f"there is no study {digest[:12]}; list the studies to see them")
