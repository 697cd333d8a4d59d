"""How bad a column of the records may be before a site answers no study about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eigenveil.errors import Code, RequestError
from eigenveil_common.config import Rule, check_rules, key

if TYPE_CHECKING:  # every command loads this file, and few read records
    from eigenveil_client.records.quality import ColumnQuality

WORDS = {
    "max_missing": "have no value",
    "max_unreadable": "have a cell that is no number",
    "max_out_of_bounds": "have a value outside the plausible range",
}
FEW = 5  # persons may be badly recorded in any file: one bad cell must not show itself as a refusal
SHARE = Rule(
    holds=lambda value: 0 <= value <= 1, words="{key} must be a share of the records, between 0 and 1"
)


class PoorColumns(RequestError):
    """Columns that are worse than the site's rules allow, code `poor-column`.

    `about` names columns and rules, for a log; the message has shares of the records, for the officer alone.
    """

    def __init__(self, poor: Iterable[Poor]) -> None:
        found = list(poor)
        told = [f"column {one.column!r}: {one.share}, {one.rule} is {one.most:g}" for one in found]
        super().__init__(
            Code.POOR_COLUMN, f"{'; '.join(told)}; mend them, or say in site.toml what they mean"
        )
        self.about = ", ".join(f"{one.column} ({one.rule})" for one in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Poor:
    """A column that breaks a rule: so many of the persons, where `most` is the largest share allowed."""

    column: str
    rule: str
    found: int
    persons: int
    most: float

    @property
    def share(self) -> str:
        """How many persons, for the officer."""
        return f"{self.found / self.persons:.1%} {WORDS[self.rule]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRules:
    """The site's own thresholds, as shares of the persons in the whole file, for each column of a study:
    fields are keys of site.toml. What is compared with them stays at the site; they are public.

    Raises:
        RequestError: code `bad-config`.
    """

    max_missing: float = key(0.5, SHARE, "A column that lacks more is not answered about.")
    max_unreadable: float = key(0.01, SHARE, "The same for cells that are no number.")
    max_out_of_bounds: float = key(0.02, SHARE, "The same for numbers that are not plausible.")

    def __post_init__(self) -> None:
        check_rules(self)

    def poor(self, quality: Iterable[ColumnQuality]) -> list[Poor]:
        """Every rule that a column breaks."""
        found = []
        for one in quality:
            counts = {
                "max_missing": one.missing - one.unreadable,
                "max_unreadable": one.unreadable,
                "max_out_of_bounds": one.implausible,
            }
            found += [
                Poor(column=one.name, rule=rule, found=count, persons=one.persons, most=getattr(self, rule))
                for rule, count in counts.items()
                if count > max(FEW, getattr(self, rule) * one.persons)
            ]
        return found

    def require(self, quality: Iterable[ColumnQuality]) -> None:
        """Insist on every column.

        Raises:
            PoorColumns: naming each that is worse than allowed.
        """
        if found := self.poor(quality):
            raise PoorColumns(found)
