"""Checks of a reader's data: plain values become typed ones, or `ReaderFailure` is raised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from eigenveil_client.records.column_quality import COUNTS, ColumnProfile, ColumnQuality
from eigenveil_client.records.isolated.frames import ReaderFailure
from eigenveil_client.records.line_counts import LONGEST_CELL, CellExample, LineCounts, UnreadableCells
from eigenveil_client.records.tables.lost import EXAMPLES, LostLines, LostReason

MOST_TEXT = 2**16  # characters of a name
MOST = 2**62
MOST_NAMES = 2**20

Given = ParamSpec("Given")
Made = TypeVar("Made")


def strict(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """Decorate `make` so that every error of a value is raised as ReaderFailure."""

    @wraps(make)
    def made(*given: Given.args, **named: Given.kwargs) -> Made:
        try:
            return make(*given, **named)
        except (TypeError, ValueError, KeyError, IndexError, OverflowError):
            raise ReaderFailure from None

    return made


def count(value: Any, most: int = MOST) -> int:
    """Return a count. Raises ReaderFailure: it is not one, or above `most`."""
    if type(value) is not int or not 0 <= value <= most:
        raise ReaderFailure
    return value


def text(value: Any) -> str:
    """Return a text. Raises ReaderFailure: it is not one, or too long."""
    if type(value) is not str or len(value) > MOST_TEXT:
        raise ReaderFailure
    return value


def number(value: Any) -> float:
    """Return a float. Raises ReaderFailure: it is not a number."""
    if type(value) not in (int, float):
        raise ReaderFailure
    return float(value)


@strict
def digest_of(value: Any) -> bytes:
    """Return 32 bytes from hexadecimal digits."""
    found = bytes.fromhex(text(value))
    if len(found) != 32:
        raise ReaderFailure
    return found


def add(found: list[Made], more: Sequence[Made], most: int | None = None) -> None:
    """Append `more` to `found`. Raises ReaderFailure: there would be more than `most` (default:
    MOST_NAMES)."""
    if len(found) + len(more) > (MOST_NAMES if most is None else most):
        raise ReaderFailure
    found.extend(more)


@strict
def texts(value: Any) -> list[str]:
    """Return a list of names."""
    return [text(one) for one in list(value)]


@strict
def quality(name: str, counts: Any, persons: int = MOST) -> ColumnQuality:
    """Return the counts of one column, stated in their order, none above the persons."""
    every, *some = (count(one, persons) for one in counts)
    checked = (every, *(count(one, every) for one in some))
    return ColumnQuality(name=name, **dict(zip(COUNTS, checked, strict=True)))


@strict
def column_profile(value: Any) -> ColumnProfile:
    """Return a profile from what `asdict` made of it."""
    name, good, problem, span = (value[key] for key in ("name", "quality", "problem", "span"))
    return ColumnProfile(
        name=text(name),
        quality=None if good is None else quality(text(good["name"]), [good[one] for one in COUNTS]),
        frequent=tuple((number(one), count(times)) for one, times in value["frequent"]),
        quantiles=tuple(number(one) for one in value["quantiles"]),
        span=None if span is None else (number(span[0]), number(span[1])),
        histogram=tuple(count(one) for one in value["histogram"]),
        problem=None if problem is None else text(problem),
    )


@strict
def lost_lines(value: Any) -> LostLines:
    """Return the lost lines of one reason."""
    reason, lines, first = value
    places = tuple(texts(first))
    if len(places) > EXAMPLES or not places:
        raise ReaderFailure
    return LostLines(reason=LostReason(reason), lines=count(lines), first=places)


@strict
def unreadable_cells(value: Any) -> UnreadableCells:
    """Return the unreadable cells of a column from what `asdict` made of them."""
    examples = tuple(
        CellExample(place=text(one["place"]), text=text(one["text"])) for one in value["examples"]
    )
    words = tuple(texts(value["fillers"]))
    shown = [*words, *(one.text for one in examples)]
    if max(len(examples), len(words)) > EXAMPLES or any(len(one) > LONGEST_CELL for one in shown):
        raise ReaderFailure
    about = {"column": text(value["column"]), "what": text(value["what"])}
    return UnreadableCells(cells=count(value["cells"]), examples=examples, fillers=words, **about)


@strict
def counts_of(
    done: Any, lost: Sequence[LostLines], cells: Sequence[UnreadableCells], names: Sequence[str]
) -> LineCounts:
    """Return the counts of all lines, which must be the used and the lost ones."""
    lines, used = count(done["lines"]), count(done["used"])
    if lines != used + sum(one.lines for one in lost):
        raise ReaderFailure
    return LineCounts(
        version=digest_of(done["version"]),
        lines=lines,
        used=used,
        lost=tuple(lost),
        skipped=count(done["skipped"]),
        repeated=None if done["repeated"] is None else count(done["repeated"], lines),
        cells=tuple(cells),
        not_numbers=tuple(names),
    )
