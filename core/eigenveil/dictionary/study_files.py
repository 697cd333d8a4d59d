"""Study drafts from fields of Python or a form, completed with a dictionary's columns; a new study file.

    dictionary = "clinical"
    columns = ["age", {name = "bmi", lower = 10, upper = 80}]

Sites and coordinator never use a dictionary for this: a submitted study has every unit and bound itself."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from eigenveil.dictionary.dictionary import Dictionary, range_text, suggestion
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.applicant import Applicant
from eigenveil.study.checks import field_types, need, plain_fields, study_error, to_plain, toml_text
from eigenveil.study.radius import radius_value
from eigenveil.study.scaling import default_scaling
from eigenveil.study.study import Column, Federation
from eigenveil.study.toml import DICTIONARY, PRIOR, SECTIONS, StudyDraft, is_whole_column, single_tables

SCALING_HINT = "in which units columns are compared: standard, bounds or none"
FEDERATION_KEYS = tuple(field_types(Federation))
APPLICANT_KEYS = tuple(field_types(Applicant))
STUDY_KEYS = tuple(key for keys in SECTIONS.values() for key in keys)
FIELDS = (DICTIONARY, PRIOR, "columns", "bounds", *STUDY_KEYS, *FEDERATION_KEYS, *APPLICANT_KEYS)


def draft_from_fields(values: Mapping[str, Any]) -> StudyDraft:
    """Return the draft with these values of fields of `Study`, `Federation` and `Applicant`. `columns`
    are Columns or names of a `dictionary`, and `bounds` replace the bounds of a column by its name.
    Raises: RequestError, code `bad-study`, a name is unknown, or a value cannot be in a study file."""
    unknown = [name for name in values if name not in FIELDS]
    need(not unknown, f"unknown argument of a study: {_hinted(unknown, FIELDS)}")
    rows = _column_rows(values.get("columns", ()), dict(values.get("bounds", {})))
    plain = {
        key: _plain(key, values[key])
        for key in (DICTIONARY, PRIOR, *STUDY_KEYS, *FEDERATION_KEYS, *APPLICANT_KEYS)
        if values.get(key) is not None
    }
    if all(map(is_whole_column, rows)):
        plain.pop(DICTIONARY, None)
    tables = SECTIONS | {
        "": (*SECTIONS[""], DICTIONARY, PRIOR), "federation": FEDERATION_KEYS, "applicant": APPLICANT_KEYS,
    }  # fmt: skip
    sections = {table: {key: plain[key] for key in keys if key in plain} for table, keys in tables.items()}
    given = {**sections.pop(""), "columns": rows, **sections}
    return StudyDraft(given=given, text=toml_text(given))


def listed_columns(columns: Any) -> list[str | Column]:
    """Return the columns of a draft as a list. Raises: RequestError, there are none, or it is one text."""
    found = [] if isinstance(columns, str) else list(columns)  # an index of pandas as well
    need(bool(found), 'columns must be a list of names, such as columns=["age", "bmi"]')
    return found


def _column_rows(columns: Any, bounds: dict[str, Any]) -> list[Any]:
    """Return the columns of a study file: names, or tables where more than a name is stated."""
    rows: list[Any] = []
    for column in listed_columns(columns):
        name, row = (column, {}) if isinstance(column, str) else (column.name, plain_fields(column))
        row |= _bounds_row(name, bounds.pop(name)) if name in bounds else {}
        rows.append({"name": name} | row if row else name)
    names = [row if isinstance(row, str) else row["name"] for row in rows]
    need(not bounds, f"bounds for columns that are not in this study: {_hinted(bounds, names)}")
    return rows


def _bounds_row(name: str, bounds: Any) -> dict[str, float]:
    try:
        lower, upper = map(float, () if isinstance(bounds, str) else bounds)
    except (TypeError, ValueError) as problem:
        raise study_error(f"bounds of {name!r} must be a pair (lower, upper), got {bounds!r}") from problem
    return {"lower": lower, "upper": upper}


def _hinted(names: Iterable[str], known: Collection[str]) -> str:
    return ", ".join(f"{name!r}{suggestion(name, known)}" for name in names)


def _plain(name: str, value: Any) -> Any:
    """Return a value of TOML; numpy's numbers become numbers."""
    if name == "radius" and not isinstance(value, str):
        value = radius_value(value)
    value = value.item() if hasattr(value, "item") else value
    value = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else to_plain(value)
    if isinstance(value, bool | int | float | str | list | dict):
        return value
    raise study_error(f"{name} = {value!r} is not a valid value in a study")


def complete(draft: StudyDraft, dictionary: Dictionary) -> StudyDraft:
    """Return the draft with the units and bounds of its columns from the dictionary.
    Raises: RequestError, code `bad-study`, a column is not in the dictionary, with similar names."""
    known = ColumnIndex(dictionary)
    rows = draft.given.get("columns", [])
    need(isinstance(rows, list), 'columns must be a list of names, such as columns = ["age", "bmi"]')
    named = [_as_table(row, place) for place, row in enumerate(single_tables(rows), 1)]
    known.check(row["name"] for row in named if not is_whole_column(row))
    given = {key: value for key, value in draft.given.items() if key not in (DICTIONARY, "columns")}
    given["columns"] = [known.row(row["name"]) | row for row in named]
    return StudyDraft(
        given=given,
        text=toml_text(given),
        source=f"{dictionary.name}, version {dictionary.version}",
        overrides=tuple(sentence for row in named for sentence in known.differences(row)),
        spreads=dictionary.spreads(),
    )


def _as_table(row: Any, place: int) -> dict[str, Any]:
    """Return one column of a study file as a table."""
    if isinstance(row, str):
        return {"name": row}
    if isinstance(row, dict) and isinstance(row.get("name"), str):
        return row
    raise study_error(f"column {place} must be a name, or a table with a name")


class ColumnIndex:
    """Dictionary indexed by the names that studies may use."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._name = dictionary.name
        self._columns = dictionary.usable()
        self._categories = {one.name: one for one in dictionary.columns if one.levels}

    def check(self, names: Iterable[str]) -> None:
        """Check that all are known. Raises: RequestError, code `bad-study`, with similar names."""
        unknown = [self._hint(name) for name in names if name not in self._columns]
        if unknown:
            raise study_error(f"not in the dictionary {self._name}: {', '.join(unknown)}")

    def _hint(self, name: str) -> str:
        category = self._categories.get(name)
        if category is None:
            return f"{name!r}{suggestion(name, self._columns)}"
        return f"{name!r} (a category; use its levels: {', '.join(one.name for one in category.columns)})"

    def row(self, name: str) -> dict[str, Any]:
        """Return the table of a column, as in a study file; empty for an unknown column."""
        column = self._columns.get(name)
        stated = {} if column is None else plain_fields(column)
        return {key: value for key, value in stated.items() if value is not None}

    def differences(self, row: Mapping[str, Any]) -> Iterator[str]:
        """Yield a sentence for each value in which a study's column differs from the dictionary's."""
        name, column = row["name"], self._columns.get(row["name"])
        if column is None:
            yield f"{name}: not in the dictionary {self._name}; unit and bounds are from the study"
            return
        lower, upper = row.get("lower", column.lower), row.get("upper", column.upper)
        if (lower, upper) != (column.lower, column.upper):
            theirs = range_text(column.lower, column.upper)
            yield f"{name}: bounds {_bounds(lower, upper)}, in the dictionary {theirs}"
        for key in ("unit", "fill"):
            default = getattr(column, key)
            if row.get(key, default) != default:
                yield f"{name}: {key} {row[key]!r}, in the dictionary {default!r}"


def _bounds(lower: Any, upper: Any) -> str:
    numbers = all(isinstance(one, int | float) for one in (lower, upper))
    return range_text(lower, upper) if numbers else f"{lower!r} to {upper!r}"


def new_study_file(draft: StudyDraft, dictionary: Dictionary) -> str:
    """Return a study file of a draft that names columns, with comments; other keys keep their defaults."""
    given, privacy, federation = draft.given, draft.given["privacy"], draft.given["federation"]
    person, seconds = given["records"].get("person_column"), federation.get("deadline_seconds")
    lines = [
        "# `eigenveil study explain` describes this study and its cost; `study example` has every other key.",
        f"name = {_text(given['name'])}",
        f"purpose = {_text(given['purpose'])}  # one sentence, for the people who consent",
        f"components = {given['components']}",
        f"dictionary = {_text(given[DICTIONARY])}  # units, bounds; change one: {{name = ..., upper = 9}}",
        "columns = [",
        *_column_lines(given["columns"], dictionary),
        "]",
        "[applicant]  # for the people who consent; empty: as in your profile. Nothing of it is checked",
        *(f"{key} = {_text(given['applicant'].get(key, ''))}" for key in APPLICANT_KEYS),
        "[privacy]",
        f"epsilon = {privacy['epsilon']!r}",
        f"delta = {privacy['delta']!r}  # far below 1 / (number of records)",
        "[records]",
        *([] if person is None else [f"person_column = {_text(person)}"]),
        f"scaling = {_text(_default_scaling(given['columns'], dictionary))}  # {SCALING_HINT}",
        "[federation]",
        f"sites = [{', '.join(map(_text, federation['sites']))}]",
    ]
    if seconds is not None:
        lines.append(f"deadline_seconds = {seconds:g}  # a person at a site decides first")
    return "\n".join(lines) + "\n"


def _default_scaling(names: Iterable[str], dictionary: Dictionary) -> str:
    known = dictionary.usable()
    columns = [known[name] for name in names if name in known]
    return default_scaling(columns, algorithm=Algorithm.AUTO, centring=True, radius=None).value


def _column_lines(names: Iterable[str], dictionary: Dictionary) -> Iterator[str]:
    known = dictionary.usable()
    for name in names:
        column = known.get(name)
        about = "" if column is None else f"  # {range_text(column.lower, column.upper)} {column.unit}"
        yield f"  {_text(name)},{about.rstrip()}"


def _text(value: str) -> str:
    """Return a TOML string."""
    return json.dumps(value, ensure_ascii=False)
