"""Kinds of cells: number, date, no value, or another word; and the marks that numbers are written with.

A kind depends on the text of the cell alone."""

from __future__ import annotations

import re
import unicodedata
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
# Words for a pending or missing result, which are a value of no measurement. Any other word is a question.
# Compared as `_folded`.
AWAITED = (
    *("ausstehend", "noch ausstehend", "steht aus", "steht noch aus", "folgt", "Befund folgt", "Wert folgt"),
    *("Ergebnis folgt", "wird nachgereicht", "angefordert", "in Arbeit", "in Bearbeitung", "storniert"),
    *("annulliert", "hämolytisch", "hämolysiert", "geronnen", "kein Material", "Material fehlt"),
    *("zu wenig Material", "keine Probe", "Probe fehlt", "nicht durchgeführt", "nicht erfolgt"),
    *("nicht erhoben", "nicht untersucht", "nicht angefordert", "nicht verfügbar", "ohne Angabe"),
    *("keine Daten", "kein Wert", "kein Ergebnis"),
    *("pending", "result pending", "awaited", "to follow", "in progress", "cancelled", "canceled"),
    *("hemolyzed", "haemolyzed", "hemolysed", "haemolysed", "clotted", "no sample", "no specimen"),
    *("sample missing", "specimen missing", "insufficient sample", "insufficient specimen", "not performed"),
    *("test not performed", "not tested", "not obtained", "not collected", "not recorded", "not reported"),
    *("not determined", "not assessed", "not ordered", "not received", "not applicable", "unavailable"),
    *("patient refused", "no data", "no result", "no value", "to be determined"),
    *("en attente", "en cours", "annulé", "hémolysé", "non fait", "non réalisé", "non effectué"),
    *("non mesuré", "non déterminé", "non disponible", "manquant", "inconnu"),
    *("pendiente", "cancelado", "anulado", "hemolizado", "no realizado", "no medido", "no disponible"),
    *("sin muestra", "sin datos", "desconocido"),
    *("in afwachting", "volgt", "geannuleerd", "gehemolyseerd", "niet bepaald", "niet gedaan"),
    *("niet gemeten", "niet beschikbaar", "ontbreekt", "geen materiaal", "onbekend"),
    *("in attesa", "in corso", "annullato", "emolizzato", "non eseguito", "non misurato"),
    *("non determinato", "mancante", "sconosciuto"),
)
LETTERS = re.compile(r"[^\W\d_]+(?:[ ./-]+[^\W\d_]+)*\.?")
MOST_LETTERS, MOST_FILLERS = 40, 2
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


def is_awaited(word: str) -> bool:
    """Return True for a known word for a pending or missing result."""
    return _folded(word) in _AWAITED


def fillers(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words among numbers that may mean "no value", without those that differ in case, if these
    are all `words` that are no number; empty if there are more than two, or one is not of letters."""
    found = {word.lower(): word for word in sorted(words, reverse=True)}
    few = 0 < len(found) <= MOST_FILLERS
    fits = all(len(word) <= MOST_LETTERS and LETTERS.fullmatch(word) for word in found)
    return tuple(sorted(found.values())) if few and fits else ()


def _folded(word: str) -> str:
    """Return a word in small letters without accents, in which hämo, haemo and hamo are the same."""
    parts = unicodedata.normalize("NFD", word.casefold())
    plain = "".join(one for one in parts if not unicodedata.combining(one)).rstrip(". ")
    return re.sub(r"(?<=[aou])e", "", " ".join(plain.split()))


_AWAITED = frozenset(map(_folded, AWAITED))


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
