"""What each analyst has submitted: one row of fixed size for each study, in its own transaction.

From these rows the quota of a day is counted, so that no restart resets it and no two submissions at once
both slip through; lists of studies read them and no plan.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import digest
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_server.clock import as_datetime
from eigenveil_server.config import Config
from eigenveil_server.storage.study_reads import StoredStudy

DAY_MS = 24 * 3_600_000
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """What lists tell of a plan: the digest of its study alone (`study_toml.study_digest`), what its
    mechanisms may add to delta, with every round tried as often as it may be, and its epsilon."""

    content: bytes
    atto_delta: int
    epsilon: float


def summary_of(plan_json: bytes) -> PlanSummary:
    """The summary of a plan that is whole."""
    told = json.loads(plan_json)
    privacy = told["study"]["privacy"]
    return PlanSummary(
        content=bytes.fromhex(digest("study", told["study"])),
        atto_delta=privacy.get("attempts", 1) * int(told["atto_delta"]),  # an old one has no attempts
        epsilon=privacy["epsilon"],
    )


def add_submission(change: Connection, stored: StoredStudy, summary: PlanSummary | None) -> None:
    """Note a study that is being stored, within its transaction."""
    told = (None, None, None) if summary is None else _columns(summary)
    signed = stored.authorization
    signer = "" if signed is None else signed.card.check().fingerprint
    row = (stored.digest, stored.analyst, stored.submitted_at, stored.size, *told, signer)
    change.execute("INSERT INTO submissions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def _columns(summary: PlanSummary) -> tuple[str, str, float]:
    return summary.content.hex(), str(summary.atto_delta), summary.epsilon


def summary_from(row: Row) -> PlanSummary | None:
    """The summary in a row of `submissions`; None for a study from before that table."""
    if row["content"] is None:
        return None
    return PlanSummary(
        content=bytes.fromhex(row["content"]), atto_delta=int(row["atto_delta"]), epsilon=row["epsilon"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionQuota:
    """What one analyst may submit in any 24 hours: so many studies of so many bytes (`StoredStudy.size`). A
    study that was refused does not count, one that was cancelled or failed does.

    The time is the coordinator's. If its clock was set back, what was submitted before counts until the clock
    has passed it by a day: never more in a day than the quota.
    """

    studies: int
    bytes: int

    @classmethod
    def of(cls, config: Config) -> SubmissionQuota:
        """As the operator says."""
        size = int(config.max_submitted_mib_per_day * MIB)
        return cls(studies=config.max_submissions_per_day, bytes=size)

    def check(self, rows: Sequence[Row], size: int) -> None:
        """Insist that one more study of `size` bytes stays within the quota; `rows` as `LATEST` finds them.

        Raises:
            RequestError: code `quota-exhausted`, saying when it would.
        """
        if size > self.bytes:
            raise RequestError(
                Code.QUOTA,
                f"this study takes {size / MIB:.2f} MiB, with its plan and what its sites state, and the "
                f"operator lets one analyst submit {self.bytes / MIB:g} MiB a day "
                "(max_submitted_mib_per_day); nothing was stored: ask for fewer columns or sites",
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
        again = as_datetime(self._free_at(rows, size)).replace(microsecond=0)
        raise RequestError(
            Code.QUOTA,
            f"you submitted {count} studies of {stored / MIB:.2f} MiB in the last 24 hours, and the operator "
            f"allows {most} ({key}); nothing was stored: submit it after {again:%Y-%m-%d %H:%M:%S} (UTC)",
        )

    def _free_at(self, rows: Sequence[Row], size: int) -> int:
        """When enough of these rows, oldest first, are a day old. Unix milliseconds."""
        count, stored = len(rows), sum(row["bytes"] for row in rows)
        for row in rows:
            count, stored = count - 1, stored - row["bytes"]
            if count < self.studies and stored + size <= self.bytes:
                return int(row["at"]) + DAY_MS + 999  # told in whole seconds, and never too early
        raise AssertionError("a study that fits an empty quota fits once all rows are gone")


LATEST = "SELECT at, bytes FROM submissions WHERE analyst = ? AND at > ? ORDER BY at"


def check_in_transaction(
    change: Connection, quota: SubmissionQuota, analyst: str, size: int, now: int
) -> None:
    """Insist on the quota within the transaction that would store the study. Raises as
    `SubmissionQuota.check`."""
    quota.check(change.execute(LATEST, (analyst, now - DAY_MS)), size)


def check_early(reader: Database, quota: SubmissionQuota, analyst: str, now: int) -> None:
    """Insist that another study may come at all, before it is planned. Raises as `SubmissionQuota.check`."""
    quota.check(reader.rows(LATEST, (analyst, now - DAY_MS)), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What one analyst has submitted: in the last 24 hours, and of all that is stored. `unrun` are the bytes
    of studies of which no round was ever asked."""

    analyst: str
    studies_today: int
    bytes_today: int
    studies: int
    bytes: int
    unrun: int


def submitted(reader: Database, now: int) -> list[Submitted]:
    """Of each analyst who ever submitted anything, by name; no plan is read."""
    rows = reader.rows(
        "SELECT p.analyst AS analyst, COUNT(*) AS studies, SUM(p.bytes) AS bytes, "
        "SUM(CASE WHEN p.at > ? THEN 1 ELSE 0 END) AS studies_today, "
        "SUM(CASE WHEN p.at > ? THEN p.bytes ELSE 0 END) AS bytes_today, "
        "SUM(CASE WHEN EXISTS (SELECT 1 FROM rounds r WHERE r.study = p.study) THEN 0 ELSE p.bytes END) "
        "AS unrun FROM submissions p GROUP BY p.analyst ORDER BY p.analyst",
        (now - DAY_MS, now - DAY_MS),
    )
    return [
        Submitted(
            analyst=row["analyst"],
            studies_today=int(row["studies_today"]),  # PostgreSQL adds up as decimals
            bytes_today=int(row["bytes_today"]),
            studies=int(row["studies"]),
            bytes=int(row["bytes"]),
            unrun=int(row["unrun"]),
        )
        for row in rows
    ]
