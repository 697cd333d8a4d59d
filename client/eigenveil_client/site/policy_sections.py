"""Sections of a site's policy: quality of columns, trust models [R29], and the budget limit for one year,
which is measured by the times in the site's ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.errors import Code, RequestError
from eigenveil.study.study import Trust
from eigenveil_common.config import AT_LEAST_ONE, KeyRule, check_rules, key

if TYPE_CHECKING:
    from eigenveil_client.records.column_quality import ColumnQuality
    from eigenveil_client.records.line_counts import LineCounts

DESCRIPTIONS = {
    "max_missing": "have no value",
    "max_unreadable": "have a cell that is not a number",
    "max_out_of_bounds": "have a value outside the plausible range",
}
TOLERATED_PERSONS = 5  # so few persons are tolerated in any file: a refusal must not reveal one bad cell
NOT_NEGATIVE = KeyRule(holds=lambda value: value >= 0, message="{key} must be at least 0")
IS_SHARE = KeyRule(
    holds=lambda value: 0 <= value <= 1, message="{key} must be a share of the records, between 0 and 1"
)


class LowQualityColumns(RequestError):
    """Error of columns below the quality that the site requires, code `poor-column`.

    `about` names columns and rules, for a log. The message has shares of the records, for the officer only.
    """

    def __init__(self, failures: Iterable[QualityFailure]) -> None:
        found = list(failures)
        descriptions = [f"column {one.column!r}: {one.share}, {one.rule} is {one.most:g}" for one in found]
        super().__init__(
            Code.LOW_QUALITY_COLUMN,
            f"{'; '.join(descriptions)}; correct them, or describe their values in site.toml",
        )
        self.about = ", ".join(f"{one.column} ({one.rule})" for one in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityFailure:
    """A column that breaks a rule: `found` of `persons`, where `most` is the largest allowed share."""

    column: str
    rule: str
    found: int
    persons: int
    most: float

    @property
    def share(self) -> str:
        """Share of the persons with this defect, for the officer."""
        return f"{self.found / self.persons:.1%} {DESCRIPTIONS[self.rule]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRules:
    """The site's quality thresholds for each column of a study; fields are keys of site.toml.

    They are shares of the persons in the whole file, and public. The compared numbers stay at the site.
    Raises RequestError: code `bad-config`."""

    max_missing: float = key(0.5, IS_SHARE, "Largest share of missing values in a column.")
    max_unreadable: float = key(0.01, IS_SHARE, "The same for cells that are not numbers.")
    max_out_of_bounds: float = key(0.02, IS_SHARE, "The same for implausible numbers.")

    def __post_init__(self) -> None:
        check_rules(self)

    def failures(self, quality: Iterable[ColumnQuality]) -> list[QualityFailure]:
        """Return every rule that a column breaks."""
        found = []
        for one in quality:
            counts = {
                "max_missing": one.missing - one.unreadable,
                "max_unreadable": one.unreadable,
                "max_out_of_bounds": one.implausible,
            }
            found += [
                QualityFailure(
                    column=one.name, rule=rule, found=count, persons=one.persons, most=getattr(self, rule)
                )
                for rule, count in counts.items()
                if count > max(TOLERATED_PERSONS, getattr(self, rule) * one.persons)
            ]
        return found

    def require(self, quality: Iterable[ColumnQuality]) -> None:
        """Require the quality of every column. Raises LowQualityColumns: naming each column that breaks a
        rule."""
        if found := self.failures(quality):
            raise LowQualityColumns(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRules:
    """The site's limits of lost lines in the whole file, for every study alike; fields are keys of site.toml.

    No study is answered if more lines are lost than both `max_lost_lines` and the share `max_lost_share` of
    all lines. Raises RequestError: code `bad-config`."""

    max_lost_lines: int = key(10, NOT_NEGATIVE)
    max_lost_share: float = key(0.001, IS_SHARE)

    def __post_init__(self) -> None:
        check_rules(self)

    @property
    def limit(self) -> str:
        """The limits as text."""
        share = f"{self.max_lost_share:.2%} of them (max_lost_share)"
        return f"at most {self.max_lost_lines} (max_lost_lines) or {share} may be lost"

    def exceeded(self, *, lines: int, lost: int) -> bool:
        """Return True if too many of the `lines` are lost."""
        return lost > max(self.max_lost_lines, self.max_lost_share * lines)

    def declines(self, counts: LineCounts) -> bool:
        """Return True if these counts decline every study."""
        return self.exceeded(lines=counts.lines, lost=counts.all_lost)


KNOWN = tuple(one.value for one in Trust)
KNOWN_MODELS_RULE = KeyRule(
    holds=lambda value: set(value) <= set(KNOWN),
    message=f"{{key}}: name some of {', '.join(KNOWN)}, or none: confirmed key cards then decide",
)
AT_LEAST_TWO = KeyRule(
    holds=lambda value: value >= 2, message="{key} must be at least 2: a sum over one site is its answer"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRules:
    """Requirements of this site; fields are keys of site.toml.

    Without `trust`, the site answers both kinds of studies until a key card of another site is confirmed,
    then masked studies only (`require_trust`). `colluding` and `minimum_sites` apply to secure aggregation:
    the least number of colluding sites that a study must tolerate, and the least number of sites in each sum.
    Raises RequestError: code `bad-config`."""

    trust: tuple[str, ...] = key((), KNOWN_MODELS_RULE)
    colluding: int = key(1, AT_LEAST_ONE)
    minimum_sites: int = key(2, AT_LEAST_TWO)

    def __post_init__(self) -> None:
        check_rules(self)


ROLLING_SECONDS = 365 * 86_400


class Year(Enum):
    """`calendar`: from 1 January, UTC; `rolling`: the last 365 days."""

    CALENDAR = "calendar"
    ROLLING = "rolling"

    def began(self, now: int) -> int:
        """Return the start of the year of `now`. Times are Unix seconds."""
        match self:
            case Year.CALENDAR:
                return int(datetime(datetime.fromtimestamp(now, UTC).year, 1, 1, tzinfo=UTC).timestamp())
            case Year.ROLLING:
                return now - ROLLING_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class YearlyLimit:
    """At most `budget` for the sum of the charges in one `year`; the noise's own deltas are not counted."""

    year: Year
    budget: PrivacyBudget
