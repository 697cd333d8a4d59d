"""A study from Python's arguments: a study file of the columns that are named, as somebody would write it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.dictionary.dictionary import nearest
from eigenveil.dictionary.resolve import KEY
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.checks import refuse
from eigenveil.study.plain_values import hints, plain, toml_text
from eigenveil.study.radius import PublicNorm, radius_value
from eigenveil.study.study import Choose, Column, Extraction, Federation, Missing, Scaling, Trust
from eigenveil.study.toml import SECTIONS
from eigenveil_client.analyst.dictionaries import FEDERATION
from eigenveil_client.analyst.federation import FederationView
from eigenveil_client.analyst.python.choosing import offering, patience

# What is not said is as `eigenveil study new` has it.
DEFAULTS = {"epsilon": 1.0, "delta": 1e-6, "components": 2}


class Choices(TypedDict, total=False):
    """What a study may be made of: `columns`, all else has a default. `bounds` are the study's own where they
    differ from the dictionary's; `dictionary` is another one than the federation's. The rest are the keys of
    deploy/config/study.example.toml."""

    columns: Sequence[str | Column]
    bounds: Mapping[str, tuple[float, float]]
    dictionary: str
    name: str
    purpose: str
    sites: Sequence[str]
    epsilon: float
    delta: float
    components: int
    algorithm: Algorithm | str
    choose: Choose | str
    rank: Extraction | str
    batches: int
    neighbours: Neighbours | str
    max_sites_per_person: int
    radius: float | str | PublicNorm
    trust: Trust | str
    colluding: int
    attempts: int
    missing: Missing | str
    person_column: str
    centring: bool
    scaling: Scaling | str
    grid_steps: int
    max_records: int
    expected_records: int
    required: Sequence[str]
    quorum: int
    deadline_seconds: float
    minimum_cohort: int


def study_file(choices: Choices, view: FederationView) -> str:
    """The text of a study file. Sites are, unless named, all that do not say that they lack a column.

    Raises:
        RequestError: code `bad-study`, an argument is none, or no site has all columns.
    """
    strange = [name for name in choices if name not in Choices.__annotations__]
    if strange:
        hinted = ", ".join(f"{name!r}{nearest(name, Choices.__annotations__)}" for name in strange)
        raise refuse(f"a study has no {hinted}")
    columns = _columns(choices)
    names = tuple(row if isinstance(row, str) else str(row["name"]) for row in columns)
    said: dict[str, Any] = {**DEFAULTS, "name": _name(names), **choices}
    if "radius" in said and not isinstance(said["radius"], str):
        said["radius"] = radius_value(said["radius"])
    said["sites"] = list(said["sites"]) if "sites" in said else list(offering(view, names))
    said.setdefault("deadline_seconds", patience(view, tuple(said["sites"])))
    data: dict[str, Any] = _those(SECTIONS[""], said)
    data[KEY] = choices.get("dictionary", FEDERATION)
    if all(isinstance(row, dict) and "unit" in row for row in columns):
        del data[KEY]  # there is nothing to look up
    data["columns"] = columns
    for section in ("privacy", "records"):
        data[section] = _those(SECTIONS[section], said)
    return toml_text(data | {"federation": _those(tuple(hints(Federation)), said)})


def _those(keys: tuple[str, ...], said: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain(key, said[key]) for key in keys if key in said}


def _plain(name: str, value: Any) -> Any:
    """As TOML has it; numpy's numbers are numbers."""
    value = value.item() if hasattr(value, "item") else value
    value = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else plain(value)
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        return value
    raise refuse(f"{name} = {value!r} is nothing that a study can say")


def _columns(choices: Choices) -> list[Any]:
    """As a study file has them: names, or tables where the study says something itself."""
    named: Any = choices.get("columns", ())
    stated = [] if isinstance(named, str) else list(named)  # of pandas as well
    if not stated:
        raise refuse('columns must be a list of names, such as columns=["age", "bmi"]')
    bounds = dict(choices.get("bounds", {}))
    rows = [_column(one, bounds.pop(one if isinstance(one, str) else one.name, None)) for one in stated]
    if bounds:
        known = [one if isinstance(one, str) else one.name for one in stated]
        hinted = ", ".join(f"{name!r}{nearest(name, known)}" for name in bounds)
        raise refuse(f"bounds of what is no column of this study: {hinted}")
    return rows


def _column(column: str | Column, bounds: tuple[float, float] | None) -> Any:
    if isinstance(column, str) and bounds is None:
        return column
    row = {"name": column} if isinstance(column, str) else {k: getattr(column, k) for k in hints(Column)}
    return row if bounds is None else row | _ends(str(row["name"]), bounds)


def _ends(name: str, bounds: Any) -> dict[str, float]:
    try:
        lower, upper = map(float, () if isinstance(bounds, str) else bounds)
    except (TypeError, ValueError) as problem:
        raise refuse(f"bounds of {name!r} must be a pair (lower, upper), got {bounds!r}") from problem
    return {"lower": lower, "upper": upper}


def _name(columns: tuple[str, ...]) -> str:
    """What the study is called unless it is said: by its first columns."""
    return re.sub("[^a-z0-9]+", "-", "-".join(columns).lower()).strip("-")[:63].strip("-") or "study"
