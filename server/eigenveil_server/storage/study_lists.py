"""Lists of studies, read from indexes: no plan, signature or release is read for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eigenveil.errors import Code, RequestError
from eigenveil_common.storage.database import Database, Row
from eigenveil_server.storage.digests import check_plan
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.submissions import PlanSummary, summary_from, summary_of

LISTED = (  # tables.sqlite.sql has them in `studies_by_time`; a plan would lie in between
    "s.digest, s.name, s.analyst, s.submission, s.micro_rho, s.expected_rounds, s.state, s.failure, "
    "s.submitted_at, p.content, p.atto_delta, p.epsilon, p.signer"
)
FROM = f"SELECT {LISTED} FROM studies s LEFT JOIN submissions p ON p.study = s.digest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedStudy:
    """What lists tell of a stored study; `submitted_at` in Unix milliseconds. `signer` are the digits of the
    key that signed it, empty for none."""

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
    """Reads `reader`, on any thread."""

    def __init__(self, reader: Database) -> None:
        self._reader = reader
        self._older: dict[str, PlanSummary] = {}  # of studies from before the table of submissions

    def behind(self, after: str, most: int) -> list[ListedStudy]:
        """`most` studies of those behind the study `after` (all, if that is empty), oldest first.

        Raises:
            RequestError: code `not-found`.
        """
        at = self._place(after) if after else (-1, "")
        where = "WHERE (s.submitted_at, s.digest) > (?, ?) ORDER BY s.submitted_at, s.digest LIMIT ?"
        return self._listed(where, (*at, most))

    def before(self, below: str, most: int) -> list[ListedStudy]:
        """`most` studies of those before the study `below` (all, if that is empty), the latest first. Raises
        as `behind`."""
        latest = "ORDER BY s.submitted_at DESC, s.digest DESC LIMIT ?"
        if not below:
            return self._listed(latest, (most,))
        return self._listed(
            f"WHERE (s.submitted_at, s.digest) < (?, ?) {latest}", (*self._place(below), most)
        )

    def get(self, digest: str) -> ListedStudy:
        """One study. Raises as `behind`."""
        found = self._listed("WHERE s.digest = ?", (digest,))
        if not found:
            raise _unknown(digest)
        return found[0]

    def latest(self, most: int, states: Iterable[StudyState]) -> list[ListedStudy]:
        """At most so many studies in these states, the latest first."""
        wanted = [state.value for state in states]
        marks = ", ".join("?" * len(wanted))
        where = f"WHERE s.state IN ({marks}) ORDER BY s.submitted_at DESC, s.digest DESC LIMIT ?"
        return self._listed(where, (*wanted, most))

    def of_analyst(self, analyst: str, states: Iterable[StudyState]) -> list[ListedStudy]:
        """One analyst's studies in these states, the latest first."""
        wanted = [state.value for state in states]
        marks = ", ".join("?" * len(wanted))
        where = f"WHERE s.analyst = ? AND s.state IN ({marks}) ORDER BY s.submitted_at DESC, s.digest DESC"
        return self._listed(where, (analyst, *wanted))

    def in_states(self, *states: StudyState) -> list[ListedStudy]:
        """All studies in these states, oldest first."""
        marks = ", ".join("?" * len(states))
        where = f"WHERE s.state IN ({marks}) ORDER BY s.submitted_at, s.digest"
        return self._listed(where, tuple(state.value for state in states))

    def _place(self, digest: str) -> tuple[int, str]:
        rows = self._reader.rows("SELECT at FROM submissions WHERE study = ?", (digest,))
        if not rows:
            raise _unknown(digest)
        return rows[0]["at"], digest

    def _listed(self, where: str, parameters: tuple[object, ...]) -> list[ListedStudy]:
        return [self._one(row) for row in self._reader.rows(f"{FROM} {where}", parameters)]

    def _one(self, row: Row) -> ListedStudy:
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
        if digest not in self._older:
            plan_json = self._reader.rows("SELECT plan_json FROM studies WHERE digest = ?", (digest,))[0][0]
            check_plan(digest, plan_json)
            self._older[digest] = summary_of(plan_json)
        return self._older[digest]


def _unknown(digest: str) -> RequestError:
    return RequestError(Code.NOT_FOUND, f"there is no study {digest[:12]}; list the studies to see them")
