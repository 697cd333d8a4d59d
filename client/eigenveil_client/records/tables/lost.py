"""Lines of the records that are lost, by their reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

EXAMPLES = 3  # places that are named for each reason


class LostReason(Enum):
    """Reason why a line is no record, in the order in which a line is examined. `person`: the cell of the
    person column is missing. `other-row`: of a SELECT's result, which has no order of its own, a row of a
    person whose other row is the record."""

    FEW_CELLS = "too-few-cells"
    MANY_CELLS = "too-many-cells"
    BYTES = "undecodable-bytes"
    PERSON = "no-person"
    OTHER_ROW = "other-row"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostLines:
    """Number of lines lost for one reason, and the places of the first `EXAMPLES`, such as "line 7"."""

    reason: LostReason
    lines: int
    first: tuple[str, ...]


class LostPlaces:
    """Counts of lost lines so far, with the numbers of the first of each reason."""

    def __init__(self) -> None:
        self._counts: dict[LostReason, int] = {}
        self._first: dict[LostReason, list[int]] = {}

    def add(self, reason: LostReason, numbers: Sequence[int]) -> None:
        """Add lines or rows by their numbers, in their order."""
        first = self._first.setdefault(reason, [])
        first += numbers[: EXAMPLES - len(first)]
        self._counts[reason] = self._counts.get(reason, 0) + len(numbers)

    @property
    def total(self) -> int:
        return sum(self._counts.values())

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of all first lines, each once, in their order."""
        return tuple(sorted({number for first in self._first.values() for number in first}))

    def lost(self, places: Mapping[int, str]) -> tuple[LostLines, ...]:
        """Return the lost lines of each reason. `places`: the place of each number in `numbers`."""
        return tuple(
            LostLines(
                reason=reason,
                lines=self._counts[reason],
                first=tuple(places[number] for number in self._first[reason]),
            )
            for reason in LostReason
            if self._counts.get(reason)
        )
