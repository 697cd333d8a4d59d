"""Levels of a category of the dictionary that words of a column mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from eigenveil.errors import Code, RequestError
from eigenveil_client.records.discovery.columns import SeenColumn
from eigenveil_client.site.mapping.measurements import languages
from eigenveil_client.site.mapping.measurements.concepts import LEVEL_WORDS
from eigenveil_client.site.mapping.targets import Target

# Letters of sex that mean something beside each other alone: m is mujer beside h, and v is vrouw or varón.
LETTERS: Mapping[tuple[str, ...], Mapping[str, str]] = {
    ("f", "h"): {"h": "male"},
    ("h", "m"): {"h": "male", "m": "female"},
    ("k", "m"): {"k": "female"},
    ("m", "v"): {"m": "", "v": ""},
}


def levels_of_words(found: Iterable[str], levels: Sequence[str]) -> dict[str, str]:
    """Return the level of each word of a column that means one, also of letters by those beside them."""
    words = tuple(found)
    letters = tuple(sorted({word.casefold() for word in words if word.casefold() in "fhkmv"}))
    beside = LETTERS.get(letters, {}) if {"female", "male"} <= set(levels) else {}
    pairs = ((word, beside.get(word.casefold(), level_of_word(word, levels))) for word in words)
    return {word: level for word, level in pairs if level}


def level_of_word(word: str, levels: Sequence[str]) -> str | None:
    """Return the level that a word means; None if it means none of them, or several."""
    same = [level for level in levels if word.casefold() == level.casefold()]
    if same:
        return same[0]
    known = (LEVEL_WORDS, languages.LEVEL_WORDS)
    found = [
        level for level in levels if any(word.casefold() in one.get(level.casefold(), ()) for one in known)
    ]
    return found[0] if len(found) == 1 else None


def stated_levels(column: SeenColumn, target: Target, stated: str) -> tuple[tuple[str, str], ...]:
    """Return the level of each word of a category, as `stated` ("1=male,2=female") or, if empty, by the words
    themselves. Raises RequestError: code `bad-argument`, a level is unknown, or no word has one."""
    name, known = target.column.name, target.column.levels
    pairs = [part.partition("=")[::2] for part in stated.split(",") if part.strip()]
    levels = [(word.strip(), level.strip()) for word, level in pairs]
    unknown = [level for _, level in levels if level not in known]
    levels = levels or list(levels_of_words((word for word, _ in column.frequent), known).items())
    if unknown or not levels:
        why = (
            f"{unknown[0]!r} is no level" if unknown else f"none of the words of {column.header!r} is a level"
        )
        todo = f"State the level of each word: {column.header}={name}:WORD={known[0]},WORD={known[-1]}"
        raise RequestError(Code.BAD_ARGUMENT, f"{why} of {name} ({', '.join(known)}). {todo}")
    return tuple(levels)
