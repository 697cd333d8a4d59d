"""What studies may spend in one year, and when a year began: by the times in the site's own ledger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from eigenveil.accounting.budget import Budget

DAY_SECONDS = 86_400
ROLLING_DAYS = 365


class Year(Enum):
    """`calendar`: from 1 January, UTC; `rolling`: the last 365 days."""

    CALENDAR = "calendar"
    ROLLING = "rolling"

    def began(self, now: int) -> int:
        """When the year of `now` began. Times are Unix seconds."""
        match self:
            case Year.CALENDAR:
                return int(datetime(datetime.fromtimestamp(now, UTC).year, 1, 1, tzinfo=UTC).timestamp())
            case Year.ROLLING:
                return now - ROLLING_DAYS * DAY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class YearlyLimit:
    """At most `budget` in one `year`, in which what was charged adds up; its own deltas are not counted."""

    year: Year
    budget: Budget
