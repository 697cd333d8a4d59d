"""The text of a new study file from a choice of columns: short, explained, whole with its dictionary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from eigenveil.dictionary.dictionary import Dictionary, range_text
from eigenveil.dictionary.resolve import read_study_file
from eigenveil.study.toml import parse_study


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What somebody wants to study: `dictionary` is what the file will call the dictionary that it names
    columns of. `person_column` is what the sites call the column that names a person, if rows are no persons.
    `deadline_seconds` is None for the default."""

    name: str
    columns: tuple[str, ...]
    sites: tuple[str, ...]
    components: int
    epsilon: float
    delta: float
    dictionary: str
    purpose: str = ""
    person_column: str | None = None
    deadline_seconds: float | None = None


def new_study(choice: Choice, dictionary: Dictionary) -> str:
    """A study file of these columns. What it leaves out has the default of study.example.toml.

    Raises:
        RequestError: code `bad-study`, the study cannot be: an unknown column, no site, too many components.
    """
    text = _written(choice, dictionary)
    parse_study(read_study_file(text).resolved(dictionary).text)
    return text


def _written(choice: Choice, dictionary: Dictionary) -> str:
    lines = [
        "# `eigenveil study explain` says what this asks and costs, `study example` every other key.",
        f"name = {_text(choice.name)}",
        f"purpose = {_text(choice.purpose)}  # what for, in a sentence: those who must consent read it",
        f"components = {choice.components}",
        f"dictionary = {_text(choice.dictionary)}  # units and bounds; your own: {{name = ..., upper = ...}}",
        "columns = [",
        *_columns(choice.columns, dictionary),
        "]",
        "[privacy]",
        f"epsilon = {choice.epsilon!r}",
        f"delta = {choice.delta!r}  # far below one over the number of records",
        *(
            []
            if choice.person_column is None
            else ["[records]", f"person_column = {_text(choice.person_column)}"]
        ),
        "[federation]",
        f"sites = [{', '.join(map(_text, choice.sites))}]",
    ]
    if choice.deadline_seconds is not None:
        lines.append(f"deadline_seconds = {choice.deadline_seconds:g}  # a person at a site decides first")
    return "\n".join(lines) + "\n"


def _columns(names: Sequence[str], dictionary: Dictionary) -> list[str]:
    known = dictionary.usable()
    lines = []
    for name in names:
        column = known.get(name)
        about = (
            "" if column is None else f"  # {range_text(column.lower, column.upper)} {column.unit}".rstrip()
        )
        lines.append(f"  {_text(name)},{about}")
    return lines


def _text(value: str) -> str:
    """A TOML string of printable characters."""
    return json.dumps(value, ensure_ascii=False)
