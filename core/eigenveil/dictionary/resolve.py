"""A study file that names columns of a dictionary, made whole: every unit and bound is in what is sent.

    dictionary = "clinical"
    columns = ["age", {name = "bmi", lower = 10, upper = 80}]

Sites and coordinator never look anything up: the study that they get says all that it means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn, nearest, range_text
from eigenveil.errors import RequestError
from eigenveil.study.checks import refuse
from eigenveil.study.columns import single_tables
from eigenveil.study.plain_values import parse_toml, required, toml_text
from eigenveil.study.study import Column

KEY = "dictionary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A whole study as TOML, where its columns are from ("" if it says everything itself), and a sentence for
    each value that differs from the dictionary's."""

    text: str
    source: str = ""
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFile:
    """What a study file says before any dictionary was asked."""

    text: str
    data: Mapping[str, Any]

    @property
    def dictionary(self) -> str | None:
        """The dictionary that it names, if it does."""
        stated: str | None = self.data.get(KEY)
        return stated

    @property
    def is_whole(self) -> bool:
        """Whether it says all by itself."""
        rows = self.data.get("columns", [])
        whole = isinstance(rows, list) and all(_says_all(row) for row in single_tables(rows))
        return KEY not in self.data and whole

    def resolved(self, dictionary: Dictionary) -> Resolved:
        """The study with what the dictionary says of its columns.

        Raises:
            RequestError: code `bad-study`, a column is not in the dictionary, with the names nearest to it.
        """
        known = _Known(dictionary)
        rows = self.data.get("columns", [])
        if not isinstance(rows, list):
            raise refuse('columns must be a list of names, such as columns = ["age", "bmi"]')
        named = [_named(row, place) for place, row in enumerate(single_tables(rows), 1)]
        strange = [row["name"] for row in named if row["name"] not in known.columns and not _says_all(row)]
        if strange:
            raise known.refusal(strange)
        overrides = tuple(said for row in named for said in known.differences(row))
        columns = [known.row(row["name"]) | row for row in named]
        data = {key: value for key, value in self.data.items() if key not in (KEY, "columns")}
        source = f"{dictionary.name}, version {dictionary.version}"
        return Resolved(text=toml_text(data | {"columns": columns}), source=source, overrides=overrides)


def read_study_file(text: str) -> StudyFile:
    """A study file, whole or naming columns.

    Raises:
        RequestError: code `bad-study`, it is not TOML, or names a dictionary in no text.
    """
    try:
        data = parse_toml(text)
    except ValueError as problem:
        raise refuse(f"the study is not valid TOML: {problem}") from problem
    if not isinstance(data.get(KEY, ""), str):
        raise refuse(f"{KEY} = {data[KEY]!r} must be a text: the name or the path of a dictionary")
    return StudyFile(text=text, data=data)


def _says_all(row: Any) -> bool:
    return isinstance(row, dict) and set(required(Column)) <= row.keys()


def _named(row: Any, place: int) -> dict[str, Any]:
    """One column of a study file as a table."""
    if isinstance(row, str):
        return {"name": row}
    if isinstance(row, dict) and isinstance(row.get("name"), str):
        return row
    raise refuse(f"column {place} must be a name, or a table with a name")


def check_names(names: Iterable[str], dictionary: Dictionary) -> None:
    """Insist that a dictionary has these columns.

    Raises:
        RequestError: code `bad-study`, with what may have been meant.
    """
    known = _Known(dictionary)
    strange = [name for name in names if name not in known.columns]
    if strange:
        raise known.refusal(strange)


class _Known:
    """A dictionary by what studies may name."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._name = dictionary.name
        self.columns = dictionary.usable()
        self._categories = {one.name: one for one in dictionary.columns if one.levels}

    def row(self, name: str) -> dict[str, Any]:
        """What the dictionary says of a column, as a study file would; nothing of an unknown one."""
        column = self.columns.get(name)
        if column is None:
            return {}
        return {one.name: value for one in fields(column) if (value := getattr(column, one.name)) is not None}

    def differences(self, row: Mapping[str, Any]) -> Iterator[str]:
        """A sentence for each thing in which a study's column is not the dictionary's."""
        column, name = self.columns.get(row["name"]), row["name"]
        if column is None:
            yield f"{name}: not in the dictionary {self._name}; unit and bounds are the study's own"
            return
        lower, upper = row.get("lower", column.lower), row.get("upper", column.upper)
        if (lower, upper) != (column.lower, column.upper):
            mine, theirs = _bounds(lower, upper), range_text(column.lower, column.upper)
            yield f"{name}: bounds {mine}, the dictionary says {theirs}"
        for key in ("unit", "fill"):
            stated, own = row.get(key, getattr(column, key)), getattr(column, key)
            if stated != own:
                yield f"{name}: {key} {stated!r}, the dictionary says {own!r}"

    def refusal(self, strange: list[str]) -> RequestError:
        """Why these columns cannot be looked up, with what may have been meant."""
        said = [self._hint(name) for name in strange]
        return refuse(f"not in the dictionary {self._name}: {', '.join(said)}")

    def _hint(self, name: str) -> str:
        category: DictionaryColumn | None = self._categories.get(name)
        if category is None:
            return f"{name!r}{nearest(name, self.columns)}"
        return f"{name!r} (a category: name its levels, {', '.join(one.name for one in category.columns)})"


def _bounds(lower: Any, upper: Any) -> str:
    numbers = all(isinstance(one, int | float) for one in (lower, upper))
    return range_text(lower, upper) if numbers else f"{lower!r} to {upper!r}"
