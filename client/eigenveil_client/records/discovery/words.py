"""Kinds of cells: number, date, no value, or another word; and the marks that numbers are written with.

A kind depends on the text of the cell alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from eigenveil_client.records.tables.codes import MISSING

SPACES = " \u00a0\u202f"
NUMBER = re.compile(
    rf"[+-]?(?:[0-9]+(?:[.,'{SPACES}][0-9]+)*|[.,][0-9]+)(?:[eE][+-]?[0-9]{{1,3}})?", re.ASCII
)
CENSORED = re.compile(r"(?:<=?|>=?|≤|≥)\s*(?=[0-9.,])")
# Words for "no value" besides those that every table has; in small letters.
ABSENT = frozenset(
    {
        *("nd", "n.d.", "n.d", "nb", "n.b.", "n.b", "k.a.", "k.a", "ka", "k. a.", "na.", "n.a.", "n.a"),
        *("none", "missing", "miss", "unknown", "unk", "unbekannt", "fehlt", "fehlend", "keine angabe"),
        *("nicht bestimmt", "nicht gemessen", "not done", "not measured", "not available", "entfällt"),
        *("#n/a", "#na", "#nv", "#null!", "#wert!", "#value!", "#div/0!", "<na>", "null", "(null)", "\\n"),
        *("-", "--", "---", ".", "?", "*", "/", "–", "—"),
    }
)
DATE_SHAPE = re.compile(
    r"[0-9]{1,4}[-./][0-9]{1,2}[-./][0-9]{1,4}(?:[ T][0-9]{1,2}:[0-9]{2}(?::[0-9]{2}"
    r"(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?|[0-9]{8}",
    re.ASCII,
)
ISO = "ISO 8601"
FORMS = (
    *("%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y%m%d"),
    *("%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%m/%d/%Y %H:%M:%S"),
)
EARLIEST, LATEST = 1880, 2100  # years of a plausible date


class CellKind(Enum):
    """Kind of a cell's text."""

    ABSENT = "absent"
    NUMBER = "number"
    DATE = "date"
    WORD = "word"


def cell_kind(word: str) -> CellKind:
    """Return the kind of a trimmed cell, under whatever marks its number is written."""
    lowered = word.lower()
    if lowered in MISSING or lowered in ABSENT:
        return CellKind.ABSENT
    if NUMBER.fullmatch(CENSORED.sub("", word, count=1)):
        return CellKind.NUMBER if not _is_grouped_date(word) else CellKind.DATE
    if DATE_SHAPE.fullmatch(word):
        return CellKind.DATE
    return CellKind.WORD


def _is_grouped_date(word: str) -> bool:
    """Return True for 01.02.2024, which also has the shape of a number with two marks."""
    return DATE_SHAPE.fullmatch(word) is not None and sum(word.count(mark) for mark in ".,") == 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Decimal mark and mark between thousands ("" for none)."""

    decimal: str = "."
    thousands: str = ""


_BOTH = re.compile(rf"([+-]?[0-9]{{1,3}})((?:[.,'{SPACES}][0-9]{{3}})+)([.,])([0-9]*)", re.ASCII)
_ONLY_GROUPS = re.compile(rf"[+-]?[1-9][0-9]{{0,2}}(?:([.,'{SPACES}])[0-9]{{3}})(?:\1[0-9]{{3}})*", re.ASCII)
_DECIMAL = re.compile(r"[+-]?[0-9]*([.,])([0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)


def find_marks(words: Iterable[tuple[str, int]], usual: Marks | None = None) -> Marks:
    """Return the marks of numbers, by votes of words that leave no doubt, each with its number of cells.
    `usual` decides about words such as 1.234, whose mark may be either; without it they are decimals."""
    decimals, thousands, doubtful = Counter[str](), Counter[str](), Counter[str]()
    for text, times in words:
        word = CENSORED.sub("", text, count=1)
        if both := _BOTH.fullmatch(word):
            group = both[2][0]
            if group != both[3]:
                decimals[both[3]] += times
                thousands[group] += times
        elif groups := _ONLY_GROUPS.fullmatch(word):
            mark = groups[1]
            several = word.count(mark) > 1
            (thousands if several or mark not in ".," else doubtful)[mark] += times
        elif decimal := _DECIMAL.fullmatch(word):
            decimals[decimal[1]] += times
    return _decided(decimals, thousands, doubtful, usual)


def _decided(
    decimals: Counter[str], thousands: Counter[str], doubtful: Counter[str], usual: Marks | None
) -> Marks:
    group = thousands.most_common(1)[0][0] if thousands else ""
    if decimals:
        decimal = decimals.most_common(1)[0][0]
    elif group in (".", ","):
        decimal = "," if group == "." else "."
    elif usual is not None:
        decimal, group = usual.decimal, group or usual.thousands
    else:
        decimal = doubtful.most_common(1)[0][0] if doubtful else "."
    if not group:  # 1.234 beside 5,6 is a thousand
        group = next((mark for mark in doubtful if mark != decimal), "")
    return Marks(decimal=decimal, thousands="" if group == decimal else group)


def value_of(word: str, marks: Marks) -> float | None:
    """Return a word as a number with these marks; None if it is not one. A limit such as <0.6 is that
    number."""
    text = CENSORED.sub("", word, count=1)
    if marks.thousands and marks.thousands in text:
        head, mark, tail = text.partition(marks.decimal)
        groups = head.lstrip("+-").split(marks.thousands)
        if not 1 <= len(groups[0]) <= 3 or any(len(group) != 3 for group in groups[1:]):
            return None
        text = head.replace(marks.thousands, "") + mark + tail
    if marks.decimal == ",":
        if "." in text:
            return None
        text = text.replace(",", ".")
    if "_" in text or not text.isascii():
        return None
    with suppress(ValueError):
        value = float(text)
        return value if abs(value) < 1e300 else None
    return None


def date_form(words: Iterable[str]) -> str | None:
    """Return the form that all these dates have: ISO 8601, or as Python's strptime has it; else None."""
    seen = list(words)
    if not seen:
        return None
    packed = all(word.isdecimal() for word in seen)  # which ISO 8601 has too, but not for whole numbers
    for form in FORMS if packed else (ISO, *FORMS):
        if all(_is_date(word, form) for word in seen):
            return form
    return None


def _is_date(word: str, form: str) -> bool:
    with suppress(ValueError):
        day = datetime.fromisoformat(word) if form == ISO else datetime.strptime(word, form)  # noqa: DTZ007
        return EARLIEST <= day.year <= LATEST
    return False
