"""Texts in a person's language: gettext catalogues, and numbers and times as that language writes them.

English is what the code says; a further language is one file, LANGUAGE/LC_MESSAGES/eigenveil.po.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from gettext import GNUTranslations, NullTranslations
from pathlib import Path

from eigenveil.accounting.digits import Amount, shown_down, shown_up

DOMAIN = "eigenveil"
ENGLISH = "en"


def mark(message: str) -> str:
    """`message` as it is: a catalogue holds it, and whoever shows it looks it up."""
    return message


MOMENT, DAY = mark("%Y-%m-%d %H:%M (UTC)"), mark("%Y-%m-%d")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Words:
    """One language. Called with a message and the values of its %(name)s places."""

    language: str
    catalogue: NullTranslations

    def __call__(self, message: str, **values: object) -> str:
        said = self.catalogue.gettext(message)
        return said % values if values else said

    def plural(self, one: str, many: str, number: int, **values: object) -> str:
        """`one` or `many`, by `number`, which is a value as well."""
        return self.catalogue.ngettext(one, many, number) % (values | {"number": self.number(number)})

    def moment(self, at: float) -> str:
        """Unix seconds as a day and a time, UTC."""
        return f"{datetime.fromtimestamp(at, UTC):{self(MOMENT)}}"

    def day(self, at: float) -> str:
        """Unix seconds as a day, UTC."""
        return f"{datetime.fromtimestamp(at, UTC):{self(DAY)}}"

    def number(self, value: float, digits: int = 4) -> str:
        """A number in at most so many significant digits, whole ones in full."""
        return self._set(f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}g}")

    def up(self, value: Amount, digits: int = 4) -> str:
        """What is spent or promised of privacy, rounded up [P5]."""
        return self._set(shown_up(value, digits))

    def down(self, value: Amount, digits: int = 4) -> str:
        """What is left or allowed of privacy, rounded down [P5]."""
        return self._set(shown_down(value, digits))

    def _set(self, text: str) -> str:
        """With the marks that this language has in numbers."""
        point = self.catalogue.pgettext("decimal point", ".")
        comma = self.catalogue.pgettext("between thousands", ",")
        return text.translate({ord("."): point, ord(","): comma})


class Languages:
    """English, and what has a folder in `folder`."""

    def __init__(self, folder: Path | None = None, first: str = ENGLISH) -> None:
        files = sorted(folder.glob(f"*/LC_MESSAGES/{DOMAIN}.mo")) if folder else []
        self._held = {ENGLISH: Words(language=ENGLISH, catalogue=NullTranslations())}
        for path in files:
            name = path.parent.parent.name
            with path.open("rb") as file:
                self._held[name] = Words(language=name, catalogue=GNUTranslations(file))
        self._first = first if first in self._held else ENGLISH

    @property
    def names(self) -> tuple[str, ...]:
        """Every language, by its code."""
        return tuple(self._held)

    def words(self, name: str) -> Words:
        """A language that is held; the first for one that is not."""
        return self._held.get(name, self._held[self._first])

    def accepted(self, header: str) -> str:
        """The language that a browser's Accept-Language likes best; the first if it likes none of ours."""
        return next((name for name in _preferred(header) if name in self._held), self._first)


def _preferred(header: str) -> Iterable[str]:
    """Language codes without their country, the most wanted first."""
    weighed: list[tuple[float, str]] = []
    for one in header.split(",")[:20]:
        name, _, rest = one.strip().partition(";")
        weight = rest.strip().removeprefix("q=")
        try:
            weighed.append((-float(weight or 1), name.split("-")[0].lower()))
        except ValueError:
            continue
    return [name for _, name in sorted(weighed, key=lambda pair: pair[0])]
