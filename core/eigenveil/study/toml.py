"""Studies from TOML or plain mappings, and back; unknown keys, wrong types and missing keys are refused."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from eigenveil.numerics.encoding import digest
from eigenveil.study.checks import refuse
from eigenveil.study.columns import column_tables, columns_from
from eigenveil.study.plain_values import check_keys, checked, hints, parse_toml, plain, required, toml_text
from eigenveil.study.radius import radius_from, radius_value
from eigenveil.study.study import Column, Federation, Study

SECTIONS: dict[str, tuple[str, ...]] = {
    "": ("name", "purpose", "algorithm", "choose", "components", "rank", "batches"),
    "privacy": (
        "epsilon", "delta", "neighbours", "max_sites_per_person", "radius", "trust", "colluding", "attempts",
    ),
    "records": (
        "missing", "person_column", "centring", "scaling", "grid_steps", "max_records",
        "expected_records",
    ),
}  # fmt: skip
TABLES = ("federation", "columns")
FILLED_IN = (
    "a file that only names columns of a dictionary is made whole by `eigenveil study resolve`, which fills "
    "in their units and bounds"
)


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
        data = parse_toml(text)
    except ValueError as problem:
        raise refuse(f"the study is not valid TOML: {problem}") from problem
    return study_from_dict(data)


def study_to_toml(study: Study) -> str:
    """A study as TOML: `parse_study` gives the same study."""
    return toml_text(study_to_dict(study))


def study_from_dict(data: dict[str, Any]) -> Study:
    """Build a study from the nested mapping that a TOML file or a plan holds.

    Raises:
        RequestError: an unknown or missing key, a wrong type, or a refused value.
    """
    if "dictionary" in data:
        raise refuse(f"a study says every bound itself; {FILLED_IN}")
    check_keys(data, (*SECTIONS[""], "privacy", "records", *TABLES), (), "the study", refuse)
    flat = {key: data[key] for key in SECTIONS[""] if key in data}
    for section in ("privacy", "records"):
        part = _table(data, section)
        check_keys(part, SECTIONS[section], (), f"[{section}]", refuse)
        flat |= part
    check_keys(flat, flat, [key for key in required(Study) if key not in TABLES], "the study", refuse)
    radius = radius_from(flat.pop("radius", "balance"))
    return Study(
        **checked(Study, flat, refuse, {}),
        radius=radius,
        columns=_columns(data),
        federation=_federation(data),
    )


def study_to_dict(study: Study) -> dict[str, Any]:
    """The inverse of `study_from_dict`: nested plain values with every key present."""
    flat = _fields(study) | {"radius": radius_value(study.radius)}
    out: dict[str, Any] = {key: flat[key] for key in SECTIONS[""]}
    for section in ("privacy", "records"):
        out[section] = {key: flat[key] for key in SECTIONS[section]}
    out["federation"] = _fields(study.federation)
    out["columns"] = column_tables(study.columns)
    return out


def _fields(value: Study | Federation) -> dict[str, Any]:
    return {one.name: plain(getattr(value, one.name)) for one in fields(value)}


def study_digest(study: Study) -> str:
    """SHA-256 (hex) of all that a study says: the same for two submissions of one study."""
    return digest("study", study_to_dict(study))


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    part = data.get(name, {})
    if not isinstance(part, dict):
        raise refuse(f"[{name}] must be a table")
    return part


def _columns(data: dict[str, Any]) -> tuple[Column, ...]:
    rows = data.get("columns", [])
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        raise refuse(f"columns must be an array of tables, [[columns]]; {FILLED_IN}")
    return columns_from(rows)


def _federation(data: dict[str, Any]) -> Federation:
    part = _table(data, "federation")
    check_keys(part, hints(Federation), required(Federation), "[federation]", refuse)
    return Federation(**checked(Federation, part, refuse, {}))
