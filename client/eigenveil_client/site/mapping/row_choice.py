"""Choice among several rows of a person: the last by a date, or the mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eigenveil_client.records.discovery.columns import SeenColumn
from eigenveil_client.records.discovery.words import ISO
from eigenveil_client.site.mapping.measurements.names import words

BIRTHS = frozenset(("birth", "birthdate", "dob", "geburt", "geburtsdatum", "geb", "gebdat", "born"))
VISITS = (
    *("visit", "besuch", "untersuchung", "untersuchungsdatum", "entnahme", "abnahme", "entnahmedatum"),
    *("abnahmedatum", "messdatum", "measurement", "sample", "collected", "datum", "date", "day", "aufnahme"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChoice:
    """Reduction of several rows of a person to one number: the last by the date column `by`, or the mean."""

    by: str = ""
    form: str | None = None

    @property
    def text(self) -> str:
        """The row that counts, and the reason."""
        if not self.by:
            return "their mean counts (rows), as no column of dates is clearly that of the visit"
        return f"the last by {self.by} counts (rows), by its name or as the only column of dates"

    def keys(self, *, words: bool) -> dict[str, Any]:
        """Return the keys of a column; a column of `words` has no mean."""
        if not self.by:
            return {"rows": "maximum" if words else "mean"}
        stated = {"rows": "last", "by": self.by}
        return stated if self.form in (None, ISO) else stated | {"dates": self.form}


def row_choice(columns: Sequence[SeenColumn]) -> RowChoice:
    """Return the choice for a table with several rows of a person, by its columns of dates."""
    dated = [one for one in columns if one.is_date and not is_birth(one)]
    ranked = [(rank, one) for one in dated for rank, word in enumerate(VISITS) if word in words(one.header)]
    if ranked:
        best = min(ranked, key=lambda one: one[0])[1]
        return RowChoice(by=best.header.strip(), form=best.date_form)
    return RowChoice(by=dated[0].header.strip(), form=dated[0].date_form) if len(dated) == 1 else RowChoice()


def is_birth(column: SeenColumn) -> bool:
    """Return True if a column is called like a date of birth."""
    return bool(BIRTHS & set(words(column.header)))
