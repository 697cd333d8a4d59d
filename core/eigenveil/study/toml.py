"""Studies from TOML or plain mappings; unknown keys, wrong types and missing keys are refused."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from enum import Enum
from typing import Any

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import digest
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column, Extraction, Federation, Missing, Scaling, Study, Trust

BOM = "\ufeff"  # some editors write it before the first character; it says nothing


def _refuse(message: str) -> RequestError:
    return RequestError(Code.BAD_STUDY, message)


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise _refuse(message)


def parse_study(text: str) -> Study:
    """Read a study from the text of a TOML file; deploy/config/study.example.toml has every key.

    Raises:
        RequestError: the text is not TOML, a key is unknown or missing, or a value is refused.

    >>> from eigenveil import parse_study
    >>> parse_study('''
    ... name = "pilot"
    ... components = 1
    ... privacy = {epsilon = 1.0, delta = 1e-6}
    ... federation = {sites = ["north", "south"]}
    ... columns = [{name = "age", unit = "year", lower = 0, upper = 120}]
    ... ''').columns[0].upper
    120.0
    """
    try:
        data = tomllib.loads(text.removeprefix(BOM))
    except (ValueError, RecursionError) as problem:  # an integer of thousands of digits, or deep nesting
        raise _refuse(f"the study is not valid TOML: {problem}") from problem
    return study_from_dict(data)


SECTIONS: dict[str, tuple[str, ...]] = {
    "": ("name", "purpose", "algorithm", "components", "rank", "batches"),
    "privacy": ("epsilon", "delta", "neighbours", "max_sites_per_person", "radius", "trust"),
    "records": (
        "missing", "person_column", "centring", "scaling", "max_records", "expected_records",
    ),
}  # fmt: skip
REQUIRED = ("name", "components", "epsilon", "delta")
ENUMS: dict[str, type[Enum]] = {
    "algorithm": Algorithm,
    "neighbours": Neighbours,
    "missing": Missing,
    "scaling": Scaling,
    "rank": Extraction,
    "trust": Trust,
}
TYPES: dict[str, tuple[type, ...]] = {
    "name": (str,), "purpose": (str,), "components": (int,), "batches": (int, type(None)),
    "epsilon": (float, int), "delta": (float, int), "max_sites_per_person": (int,),
    "person_column": (str, type(None)), "centring": (bool,), "max_records": (int,),
    "expected_records": (int,), "unit": (str,), "lower": (float, int), "upper": (float, int),
    "fill": (float, int, type(None)), "sites": (tuple,), "required": (tuple,),
    "quorum": (int, type(None)), "deadline_seconds": (float, int), "minimum_cohort": (int,),
}  # fmt: skip


def study_from_dict(data: dict[str, Any]) -> Study:
    """Build a study from the nested mapping that a TOML file or a plan holds.

    Raises:
        RequestError: an unknown or missing key, a wrong type, or a refused value.
    """
    _unknown(data, (*SECTIONS[""], "privacy", "records", "federation", "columns"), "the study")
    flat: dict[str, Any] = {}
    for section, keys in SECTIONS.items():
        part = data if section == "" else _table(data, section)
        if section:
            _unknown(part, keys, f"[{section}]")
        flat.update({key: _value(key, part[key]) for key in keys if key in part})
    missing = [key for key in REQUIRED if key not in flat]
    _need(not missing, f"the study misses: {', '.join(missing)}")
    return Study(**flat, columns=_columns(data), federation=_federation(data))


def study_to_dict(study: Study) -> dict[str, Any]:
    """The inverse of `study_from_dict`: nested plain values with every key present."""
    flat = {f.name: _plain(f.name, getattr(study, f.name)) for f in fields(Study)}
    out: dict[str, Any] = {key: flat[key] for key in SECTIONS[""]}
    for section in ("privacy", "records"):
        out[section] = {key: flat[key] for key in SECTIONS[section]}
    out["federation"] = {
        f.name: _plain(f.name, getattr(study.federation, f.name)) for f in fields(Federation)
    }
    out["columns"] = [
        {f.name: _plain(f.name, getattr(column, f.name)) for f in fields(Column)} for column in study.columns
    ]
    return out


def study_digest(study: Study) -> str:
    """SHA-256 (hex) of all that a study says: the same for two submissions of one study."""
    return digest("study", study_to_dict(study))


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if key == "radius":
        return "balance" if value is None else "none" if value == 1 else value
    return list(value) if isinstance(value, tuple) else value


def _unknown(data: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    strange = sorted(set(data) - set(known))
    _need(
        not strange,
        f"unknown key in {where}: {', '.join(strange)} (known: {', '.join(known)})",
    )


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    part = data.get(name, {})
    if not isinstance(part, dict):
        raise _refuse(f"[{name}] must be a table")
    return part


def _value(key: str, value: Any) -> Any:
    if key in ENUMS:
        try:
            return ENUMS[key](value)
        except ValueError as problem:
            known = ", ".join(str(member.value) for member in ENUMS[key])
            raise _refuse(f"{key} = {value!r} is unknown; choose one of: {known}") from problem
    if key == "radius":
        return _radius(value)
    if isinstance(value, list):
        value = tuple(value)
    wanted = TYPES[key]
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise _refuse(f"{key} = {value!r} has the wrong type")
    return _float(key, value) if float in wanted and isinstance(value, int) else value


def _float(key: str, value: int | float) -> float:
    try:
        return float(value)
    except OverflowError as problem:
        raise _refuse(f"{key} is beyond the range of 64-bit numbers") from problem


def _radius(value: Any) -> float | None:
    if value == "balance":
        return None
    if value == "none":
        return 1.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(f'radius must be "balance", "none" or a quantile between 0 and 1, got {value!r}')
    share = _float("radius", value)
    _need(
        0 < share < 1, f'radius must be "balance", "none" or a quantile strictly inside (0, 1), got {share}'
    )
    return share


def _columns(data: dict[str, Any]) -> tuple[Column, ...]:
    rows = data.get("columns", [])
    _need(
        isinstance(rows, list) and all(isinstance(row, dict) for row in rows),
        "columns must be an array of tables: [[columns]]",
    )
    out = []
    for position, row in enumerate(rows, 1):
        where = f"column {row.get('name', position)!r}"
        _unknown(row, ("name", "unit", "lower", "upper", "fill"), where)
        missing = [key for key in ("name", "unit", "lower", "upper") if key not in row]
        unbounded = {"lower", "upper"} & set(missing)
        hint = " (bounds are public and never read off the data)" if unbounded else ""
        _need(not missing, f"{where} misses: {', '.join(missing)}{hint}")
        out.append(Column(**{key: _value(key, value) for key, value in row.items()}))
    return tuple(out)


def _federation(data: dict[str, Any]) -> Federation:
    part = _table(data, "federation")
    known = tuple(f.name for f in fields(Federation))
    _unknown(part, known, "[federation]")
    _need("sites" in part, "[federation] misses: sites")
    values = {key: _value(key, value) for key, value in part.items()}
    for key in ("sites", "required"):
        _need(
            all(isinstance(name, str) for name in values.get(key, ())),
            f"[federation] {key} must be a list of names",
        )
    return Federation(**values)
