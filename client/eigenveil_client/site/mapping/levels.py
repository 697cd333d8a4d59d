"""Levels of a category of the dictionary that words of a column mean."""

from __future__ import annotations

from collections.abc import Sequence

from eigenveil.errors import Code, RequestError
from eigenveil_client.records.discovery.columns import SeenColumn
from eigenveil_client.site.mapping.concepts import LEVEL_WORDS
from eigenveil_client.site.mapping.targets import Target


def level_of_word(word: str, levels: Sequence[str]) -> str | None:
    """Return the level that a word means; None if it means none of them, or several."""
    same = [level for level in levels if word.casefold() == level.casefold()]
    if same:
        return same[0]
    found = [level for level in levels if word.casefold() in LEVEL_WORDS.get(level.casefold(), ())]
    return found[0] if len(found) == 1 else None


def stated_levels(column: SeenColumn, target: Target, stated: str) -> tuple[tuple[str, str], ...]:
    """Return the level of each word of a category, as `stated` ("1=male,2=female") or, if empty, by the words
    themselves. Raises RequestError: code `bad-argument`, a level is unknown, or no word has one."""
    name, known = target.column.name, target.column.levels
    pairs = [part.partition("=")[::2] for part in stated.split(",") if part.strip()]
    levels = [(word.strip(), level.strip()) for word, level in pairs]
    unknown = [level for _, level in levels if level not in known]
    levels = levels or [(word, level) for word, _ in column.frequent if (level := level_of_word(word, known))]
    if unknown or not levels:
        why = (
            f"{unknown[0]!r} is no level" if unknown else f"none of the words of {column.header!r} is a level"
        )
        todo = f"State the level of each word: {column.header}={name}:WORD={known[0]},WORD={known[-1]}"
        raise RequestError(Code.BAD_ARGUMENT, f"{why} of {name} ({', '.join(known)}). {todo}")
    return tuple(levels)
