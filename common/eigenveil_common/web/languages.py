"""Translations: gettext catalogues, and the formats of numbers and times in each language.

The code holds the English texts; each other language is one file, LANGUAGE/LC_MESSAGES/eigenveil.po.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from gettext import GNUTranslations, NullTranslations
from pathlib import Path

from eigenveil.accounting.formatting import Amount, shown_down, shown_up

DOMAIN = "eigenveil"
ENGLISH = "en"


def mark(message: str) -> str:
    """Return `message` unchanged; mark it for the catalogues, to be translated where it is shown."""
    return message


MOMENT, DAY = mark("%Y-%m-%d %H:%M (UTC)"), mark("%Y-%m-%d")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Translator:
    """Translator to one language; a call takes a message and the values of its %(name)s placeholders."""

    language: str
    catalogue: NullTranslations

    def __call__(self, message: str, **values: object) -> str:
        translated = self.catalogue.gettext(message)
        return translated % values if values else translated

    def plural(self, one: str, many: str, number: int, **values: object) -> str:
        """Return the singular or plural form for `number`, which is also a placeholder value."""
        return self.catalogue.ngettext(one, many, number) % (values | {"number": self.number(number)})

    def moment(self, at: float) -> str:
        """Format Unix seconds as date and time, UTC."""
        return f"{datetime.fromtimestamp(at, UTC):{self(MOMENT)}}"

    def day(self, at: float) -> str:
        """Format Unix seconds as a date, UTC."""
        return f"{datetime.fromtimestamp(at, UTC):{self(DAY)}}"

    def number(self, value: float, digits: int = 4) -> str:
        """Format a number with at most `digits` significant digits; integers in full."""
        return self._set(f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}g}")

    def up(self, value: Amount, digits: int = 4) -> str:
        """Format a spent or guaranteed privacy amount, rounded up [P5]."""
        return self._set(shown_up(value, digits))

    def down(self, value: Amount, digits: int = 4) -> str:
        """Format a remaining or allowed privacy amount, rounded down [P5]."""
        return self._set(shown_down(value, digits))

    def _set(self, text: str) -> str:
        """Return a number with this language's decimal point and thousands separator."""
        point = self.catalogue.pgettext("decimal point", ".")
        comma = self.catalogue.pgettext("between thousands", ",")
        return text.translate({ord("."): point, ord(","): comma})


class Languages:
    """Available languages: English and those with a catalogue in `folder`."""

    def __init__(self, folder: Path | None = None, first: str = ENGLISH) -> None:
        files = sorted(folder.glob(f"*/LC_MESSAGES/{DOMAIN}.mo")) if folder else []
        self._translators = {ENGLISH: Translator(language=ENGLISH, catalogue=NullTranslations())}
        for path in files:
            name = path.parent.parent.name
            with path.open("rb") as file:
                self._translators[name] = Translator(language=name, catalogue=GNUTranslations(file))
        self._first = first if first in self._translators else ENGLISH

    @property
    def names(self) -> tuple[str, ...]:
        """Codes of all languages."""
        return tuple(self._translators)

    def translator(self, name: str) -> Translator:
        """Return the translator of a language; the default language's if it is unknown."""
        return self._translators.get(name, self._translators[self._first])

    def preferred_language(self, header: str) -> str:
        """Return the preferred available language of an Accept-Language header; the default if none is."""
        return next((name for name in _preferred(header) if name in self._translators), self._first)


def _preferred(header: str) -> Iterable[str]:
    """Return language codes without country, in order of preference."""
    weighed: list[tuple[float, str]] = []
    for one in header.split(",")[:20]:
        name, _, rest = one.strip().partition(";")
        weight = rest.strip().removeprefix("q=")
        try:
            weighed.append((-float(weight or 1), name.split("-")[0].lower()))
        except ValueError:
            continue
    return [name for _, name in sorted(weighed, key=lambda pair: pair[0])]
