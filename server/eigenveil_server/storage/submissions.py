"""Submissions of each analyst, one row of fixed size for each study: the daily quota, and lists of studies. A
row is stored in the study's transaction, and the quota is counted from rows: no restart resets it, and no two
concurrent submissions exceed it. Lists read these rows and indexes, but no plans, signatures or releases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

from eigenveil.errors import Code, RequestError
from eigenveil.protocol.plan import Plan
from eigenveil.study.toml import study_digest
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_server.config import Config
from eigenveil_server.process import as_datetime
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy, unknown_study

DAY_MS = 24 * 3_600_000
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """Plan columns for lists: the digest of its study alone (`study_toml.study_digest`), its epsilon, and
    what its mechanisms may add to delta with every allowed attempt."""

    content: bytes
    atto_delta: int
    epsilon: float


def summary_of(plan: Plan) -> PlanSummary:
    """Return the summary of a plan."""
    content, epsilon = bytes.fromhex(study_digest(plan.study)), plan.study.epsilon
    return PlanSummary(content=content, atto_delta=plan.cost.atto_delta, epsilon=epsilon)


def add_submission(change: Connection, stored: StoredStudy, summary: PlanSummary) -> None:
    """Store the submission of a study, within the study's transaction."""
    signed = stored.authorization
    signer = "" if signed is None else signed.card.check().fingerprint
    columns = summary.content.hex(), str(summary.atto_delta), summary.epsilon
    row = (stored.digest, stored.analyst, stored.submitted_at, stored.size, *columns, signer)
    change.execute("INSERT INTO submissions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionQuota:
    """Limit on one analyst's submissions in any 24 hours: number and bytes (`StoredStudy.size`). Refused
    studies do not count; cancelled and failed ones do. The time is the coordinator's. If its clock is set
    back, earlier submissions count until the clock has passed them by a day: never more in a day than the
    quota."""

    studies: int
    bytes: int

    @classmethod
    def of(cls, config: Config) -> SubmissionQuota:
        """Return the quota in the configuration."""
        return cls(studies=config.max_submissions_per_day, bytes=int(config.max_submitted_mib_per_day * MIB))

    def check(self, rows: Sequence[Row], size: int) -> None:
        """Raise unless one more study of `size` bytes is within the quota; `rows` are the
        `recent_submissions`. Raises RequestError: code `quota-exhausted`, with the time from which it would
        be."""
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


Read = Callable[[str, tuple[object, ...]], list[Row]]  # `Database.rows`, or `Connection.execute`


def recent_submissions(read: Read, analyst: str, now: int) -> list[Row]:
    """Return time and bytes of one analyst's submissions in the last 24 hours, oldest first."""
    recent = "SELECT at, bytes FROM submissions WHERE analyst = ? AND at > ? ORDER BY at"
    return read(recent, (analyst, now - DAY_MS))


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
    counts = [one.name for one in fields(AnalystUsage) if one.name != "analyst"]
    return [  # PostgreSQL sums are decimals
        AnalystUsage(analyst=row["analyst"], **{name: int(row[name]) for name in counts}) for row in rows
    ]


LIST_QUERY = (  # in the index `studies_by_time` of tables.sqlite.sql, without the plan
    "SELECT s.digest, s.name, s.analyst, s.submission, s.micro_rho, s.expected_rounds, s.state, s.failure, "
    "s.submitted_at, p.content, p.atto_delta, p.epsilon, p.signer "
    "FROM studies s LEFT JOIN submissions p ON p.study = s.digest "
)
OLDEST_FIRST, LATEST_FIRST = (
    "ORDER BY s.submitted_at, s.digest",
    "ORDER BY s.submitted_at DESC, s.digest DESC",
)


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

    def list_after(self, after: str, most: int) -> list[ListedStudy]:
        """Return `most` studies after the study `after` (from the first, if that is empty), oldest first.
        Raises RequestError: code `not-found`."""
        at = self._position(after) if after else (-1, "")
        return self._listed(f"WHERE (s.submitted_at, s.digest) > (?, ?) {OLDEST_FIRST} LIMIT ?", (*at, most))

    def list_before(self, below: str, most: int) -> list[ListedStudy]:
        """Return `most` studies before the study `below` (from the last, if that is empty), latest first.
        Raises as `list_after`."""
        if not below:
            return self._listed(f"{LATEST_FIRST} LIMIT ?", (most,))
        where = f"WHERE (s.submitted_at, s.digest) < (?, ?) {LATEST_FIRST} LIMIT ?"
        return self._listed(where, (*self._position(below), most))

    def get(self, digest: str) -> ListedStudy:
        """Return one study. Raises as `list_after`."""
        found = self._listed("WHERE s.digest = ?", (digest,))
        if not found:
            raise unknown_study(digest)
        return found[0]

    def latest(self, most: int, states: Iterable[StudyState]) -> list[ListedStudy]:
        """Return at most so many studies in these states, latest first."""
        return self._listed(f"WHERE {_in(states)} {LATEST_FIRST} LIMIT ?", (most,))

    def of_analyst(self, analyst: str, states: Iterable[StudyState]) -> list[ListedStudy]:
        """Return one analyst's studies in these states, latest first."""
        return self._listed(f"WHERE s.analyst = ? AND {_in(states)} {LATEST_FIRST}", (analyst,))

    def in_states(self, *states: StudyState) -> list[ListedStudy]:
        """Return all studies in these states, oldest first."""
        return self._listed(f"WHERE {_in(states)} {OLDEST_FIRST}", ())

    def _position(self, digest: str) -> tuple[int, str]:
        rows = self._reader.rows("SELECT at FROM submissions WHERE study = ?", (digest,))
        if not rows:
            raise unknown_study(digest)
        return rows[0]["at"], digest

    def _listed(self, where: str, parameters: tuple[object, ...]) -> list[ListedStudy]:
        return [_listed_study(row) for row in self._reader.rows(LIST_QUERY + where, parameters)]


def _listed_study(row: Row) -> ListedStudy:
    columns = dict(zip(row.keys(), row, strict=True))
    content, delta, epsilon = (columns.pop(name) for name in ("content", "atto_delta", "epsilon"))
    summary = PlanSummary(content=bytes.fromhex(content), atto_delta=int(delta), epsilon=epsilon)
    return ListedStudy(**columns | {"state": StudyState(row["state"])}, summary=summary)


def _in(states: Iterable[StudyState]) -> str:
    """Return the condition that a study is in one of these states."""
    return f"s.state IN ({', '.join(repr(state.value) for state in states)})"
