"""Study files that name columns of a dictionary: resolution to units and bounds, and the text of a new one.

    dictionary = "clinical"
    columns = ["age", {name = "bmi", lower = 10, upper = 80}]

Sites and coordinator never use a dictionary for this: a submitted study has every unit and bound itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn, range_text, suggestion
from eigenveil.errors import RequestError
from eigenveil.study.checks import parse_toml, required, study_error, toml_text
from eigenveil.study.study import Column
from eigenveil.study.toml import parse_study, single_tables

KEY = "dictionary"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedStudy:
    """Complete study as TOML.

    `source` names the dictionary ("" if none was used). `overrides` has a sentence for each value that
    differs from the dictionary's.
    """

    text: str
    source: str = ""
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFile:
    """Content of a study file before a dictionary is applied."""

    text: str
    data: Mapping[str, Any]

    @property
    def dictionary(self) -> str | None:
        """Name or path of the dictionary in the file, or None."""
        stated: str | None = self.data.get(KEY)
        return stated

    @property
    def is_whole(self) -> bool:
        """True if the file needs no dictionary."""
        rows = self.data.get("columns", [])
        whole = isinstance(rows, list) and all(_is_complete(row) for row in single_tables(rows))
        return KEY not in self.data and whole

    def resolved(self, dictionary: Dictionary) -> ResolvedStudy:
        """Return the study with its columns completed from the dictionary.

        Raises:
            RequestError: code `bad-study`, a column is not in the dictionary, with similar names.
        """
        known = _ColumnIndex(dictionary)
        rows = self.data.get("columns", [])
        if not isinstance(rows, list):
            raise study_error('columns must be a list of names, such as columns = ["age", "bmi"]')
        named = [_as_table(row, place) for place, row in enumerate(single_tables(rows), 1)]
        unknown_names = [
            row["name"] for row in named if row["name"] not in known.columns and not _is_complete(row)
        ]
        if unknown_names:
            raise known.refusal(unknown_names)
        overrides = tuple(message for row in named for message in known.differences(row))
        columns = [known.row(row["name"]) | row for row in named]
        data = {key: value for key, value in self.data.items() if key not in (KEY, "columns")}
        source = f"{dictionary.name}, version {dictionary.version}"
        return ResolvedStudy(text=toml_text(data | {"columns": columns}), source=source, overrides=overrides)


def read_study_file(text: str) -> StudyFile:
    """Return a study file, complete or with names of columns.

    Raises:
        RequestError: code `bad-study`, not TOML, or the name of the dictionary is not a text.
    """
    try:
        data = parse_toml(text)
    except ValueError as problem:
        raise study_error(f"the study is not valid TOML: {problem}") from problem
    if not isinstance(data.get(KEY, ""), str):
        raise study_error(f"{KEY} = {data[KEY]!r} must be a text: the name or the path of a dictionary")
    return StudyFile(text=text, data=data)


def _is_complete(row: Any) -> bool:
    return isinstance(row, dict) and set(required(Column)) <= row.keys()


def _as_table(row: Any, place: int) -> dict[str, Any]:
    """Return one column of a study file as a table."""
    if isinstance(row, str):
        return {"name": row}
    if isinstance(row, dict) and isinstance(row.get("name"), str):
        return row
    raise study_error(f"column {place} must be a name, or a table with a name")


def check_names(names: Iterable[str], dictionary: Dictionary) -> None:
    """Check that a dictionary has these columns.

    Raises:
        RequestError: code `bad-study`, with similar names.
    """
    known = _ColumnIndex(dictionary)
    unknown_names = [name for name in names if name not in known.columns]
    if unknown_names:
        raise known.refusal(unknown_names)


class _ColumnIndex:
    """Dictionary indexed by the names that studies may use."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._name = dictionary.name
        self.columns = dictionary.usable()
        self._categories = {one.name: one for one in dictionary.columns if one.levels}

    def row(self, name: str) -> dict[str, Any]:
        """Return the table of a column, as in a study file; empty for an unknown column."""
        column = self.columns.get(name)
        if column is None:
            return {}
        return {one.name: value for one in fields(column) if (value := getattr(column, one.name)) is not None}

    def differences(self, row: Mapping[str, Any]) -> Iterator[str]:
        """Yield a sentence for each value in which a study's column differs from the dictionary's."""
        column, name = self.columns.get(row["name"]), row["name"]
        if column is None:
            yield f"{name}: not in the dictionary {self._name}; unit and bounds are from the study"
            return
        lower, upper = row.get("lower", column.lower), row.get("upper", column.upper)
        if (lower, upper) != (column.lower, column.upper):
            mine, theirs = _bounds(lower, upper), range_text(column.lower, column.upper)
            yield f"{name}: bounds {mine}, in the dictionary {theirs}"
        for key in ("unit", "fill"):
            stated, default = row.get(key, getattr(column, key)), getattr(column, key)
            if stated != default:
                yield f"{name}: {key} {stated!r}, in the dictionary {default!r}"

    def refusal(self, unknown_names: list[str]) -> RequestError:
        """Return the error for unknown columns, with similar names."""
        message = [self._hint(name) for name in unknown_names]
        return study_error(f"not in the dictionary {self._name}: {', '.join(message)}")

    def _hint(self, name: str) -> str:
        category: DictionaryColumn | None = self._categories.get(name)
        if category is None:
            return f"{name!r}{suggestion(name, self.columns)}"
        return f"{name!r} (a category; use its levels: {', '.join(one.name for one in category.columns)})"


def _bounds(lower: Any, upper: Any) -> str:
    numbers = all(isinstance(one, int | float) for one in (lower, upper))
    return range_text(lower, upper) if numbers else f"{lower!r} to {upper!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStudy:
    """Choices for a new study file.

    `dictionary` is the name or path of the dictionary in the file. `person_column` identifies a person at the
    sites, if a person has several rows. `deadline_seconds` is None for the default.
    """

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


def new_study(choice: NewStudy, dictionary: Dictionary) -> str:
    """Return a study file of these columns. Other keys have the defaults of study.example.toml.

    Raises:
        RequestError: code `bad-study`, such as an unknown column, no site or too many components.
    """
    text = _written(choice, dictionary)
    parse_study(read_study_file(text).resolved(dictionary).text)
    return text


def _written(choice: NewStudy, dictionary: Dictionary) -> str:
    lines = [
        "# `eigenveil study explain` describes this study and its cost; `study example` has every other key.",
        f"name = {_text(choice.name)}",
        f"purpose = {_text(choice.purpose)}  # one sentence, for the people who consent",
        f"components = {choice.components}",
        f"dictionary = {_text(choice.dictionary)}  # units, bounds; change one: {{name = ..., upper = 9}}",
        "columns = [",
        *_columns(choice.columns, dictionary),
        "]",
        "[privacy]",
        f"epsilon = {choice.epsilon!r}",
        f"delta = {choice.delta!r}  # far below 1 / (number of records)",
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
    """Return a TOML string."""
    return json.dumps(value, ensure_ascii=False)
