"""What an import makes: the text of a dictionary in which a person fills in what its source does not have."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eigenveil.dictionary.dictionary import LONGEST_TEXT, MAX_COLUMNS
from eigenveil.dictionary.toml import TO_FILL, TO_FILL_IN
from eigenveil.study.checks import need, refuse
from eigenveil.study.plain_values import BOM, toml_text
from eigenveil.study.study import LONGEST_NAME

TAB = "\t"
Row = Mapping[str, str]
HEADING = """\
# Imported. Wherever this says {to_fill!r}, write what is known of the measurement, never what records say:
# public bounds (lower, upper) in the column's unit (UCUM, "" for none), and whence they are (source). Until
# then no command takes this file: `eigenveil dictionary check` says what is left.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The text of a dictionary, how many columns it has, how many of them are still to be filled in, and how
    many rows of the source are no measurement that a study could use."""

    text: str
    columns: int
    to_fill: int
    left_out: int


def rows(lines: Iterable[str], separator: str, needed: Iterable[str]) -> Iterator[Row]:
    """The rows of delimited text by the names in its first line. A quoted cell may hold line breaks.

    Raises:
        RequestError: code `bad-study`, a column is missing, or it is not delimited text.
    """
    table = _without_mark(lines)
    reader = (
        csv.DictReader(
            table, delimiter=separator, quoting=csv.QUOTE_NONE, restval=""
        )  # a name may hold a quote
        if separator == TAB
        else csv.DictReader(table, delimiter=separator, restval="")
    )
    try:
        missing = [name for name in needed if name not in (reader.fieldnames or ())]
        need(
            not missing,
            f"the first line names no {', '.join(map(repr, missing))}; is this the file you mean?",
        )
        for row in reader:
            yield {name: value for name, value in row.items() if name is not None}
    except csv.Error as problem:
        raise refuse(f"line {reader.line_num} cannot be read: {problem}") from problem


def _without_mark(lines: Iterable[str]) -> Iterator[str]:
    for place, line in enumerate(lines):
        yield line.removeprefix(BOM) if place == 0 else line


def to_draft(name: str, about: str, columns: Iterable[Mapping[str, Any] | None]) -> Draft:
    """The draft of a dictionary with these columns, None being a row that gave none.

    Raises:
        RequestError: code `bad-study`, there is no column or too many, or two have one name.
    """
    taken: dict[str, Mapping[str, Any]] = {}
    left_out = 0
    for column in columns:
        if column is None:
            left_out += 1
            continue
        need(column["name"] not in taken, f"two rows give a column {column['name']!r}; leave one of them out")
        taken[column["name"]] = column
        need(
            len(taken) <= MAX_COLUMNS, f"over {MAX_COLUMNS} columns: leave in the file what studies will use"
        )
    need(bool(taken), "no row is a measurement that a study could use")
    open_ones = sum(any(one.get(key) == TO_FILL for key in TO_FILL_IN) for one in taken.values())
    said = {"name": name, "version": 1, "about": about, "columns": list(taken.values())}
    text = (HEADING.format(to_fill=TO_FILL) + "\n" if open_ones else "") + toml_text(said)
    return Draft(text=text, columns=len(taken), to_fill=open_ones, left_out=left_out)


def readable(text: str, most: int = LONGEST_TEXT) -> str:
    """Somebody else's words on one line, shortened: without what a terminal would obey."""
    words = "".join(one if one.isprintable() else " " for one in text)
    return " ".join(words.split())[:most]


def a_name(text: str) -> str:
    """A column's name out of a title."""
    kept = "".join(one if one.isalnum() else " " for one in text.casefold())
    return "_".join(kept.split())[:LONGEST_NAME]
