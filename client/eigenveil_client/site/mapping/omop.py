"""SELECT of one row a person over OMOP's tables `person` and `measurement`, with a dictionary's columns.

Measurements are found by LOINC codes in the table `concept`, or else by OMOP's own numbers. Each is converted
from the unit that its row states. A column NAME_raw has the values whose unit is not stated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eigenveil.dictionary.dictionary import ColumnType
from eigenveil_client.records.discovery.tables import PossibleTable
from eigenveil_client.records.sources.databases import quoted
from eigenveil_client.site.mapping.targets import Target

PERSON = "person_id"
RAW = "_raw"
NEEDED = {
    "person": ("person_id", "year_of_birth"),
    "measurement": ("person_id", "measurement_concept_id", "value_as_number"),
}
CONCEPT = ("concept_id", "concept_code", "vocabulary_id")
# OMOP's numbers of units, where the table `concept` is not there.
UNITS = {
    "mg/dL": 8840, "mmol/L": 8753, "umol/L": 8749, "g/dL": 8713, "g/L": 8636, "kg": 9529, "cm": 8582,
    "mm[Hg]": 8876, "%": 8554, "/min": 8541, "U/L": 8645, "10*3/uL": 8848, "Cel": 586323, "[degF]": 9289,
    "[lb_av]": 8739, "a": 9448,
}  # fmt: skip
SEX = "CASE p.gender_concept_id WHEN 8507 THEN 'male' WHEN 8532 THEN 'female' END"
AGE = "extract(year FROM max(m.measurement_date)) - max(p.year_of_birth)"


def find_omop(tables: Iterable[PossibleTable]) -> dict[str, PossibleTable] | None:
    """Return the tables of OMOP by their names, of one schema; None if it has not both. The table `concept`
    is among them if it is there."""
    by_place: dict[str, dict[str, PossibleTable]] = {}
    for one in tables:
        by_place.setdefault(one.place, {})[one.name.lower()] = one
    for named in by_place.values():
        if all(
            name in named and set(columns) <= set(named[name].columns) for name, columns in NEEDED.items()
        ):
            return named
    return None


def omop_select(
    tables: dict[str, PossibleTable], targets: Sequence[Target], only: Iterable[str] | None = None
) -> str:
    """Return the SELECT of the columns for these targets; of those in `only` if that is given."""
    wanted = None if only is None else set(only)
    concepts = "concept" in tables and set(CONCEPT) <= set(tables["concept"].columns)
    units = "unit_concept_id" in tables["measurement"].columns
    lines = [f"SELECT p.person_id AS {PERSON}"]
    for target in targets:
        for name, expression in _columns(target, tables, concepts, units):
            if wanted is None or name in wanted:
                lines.append(f"  {expression} AS {quoted(name)}")
    persons, measurements = (tables[name].qualified for name in NEEDED)
    joins = [f"FROM {persons} p LEFT JOIN {measurements} m ON m.person_id = p.person_id"]
    if concepts:
        named = tables["concept"].qualified
        joins.append(
            f"LEFT JOIN {named} c ON c.concept_id = m.measurement_concept_id AND c.vocabulary_id = 'LOINC'"
        )
        if units:
            joins.append(f"LEFT JOIN {named} u ON u.concept_id = m.unit_concept_id")
    sex = ", p.gender_concept_id" if "gender_concept_id" in tables["person"].columns else ""
    return "\n".join([",\n".join(lines), *joins, f"GROUP BY p.person_id{sex}"])


def _columns(
    target: Target, tables: dict[str, PossibleTable], concepts: bool, units: bool
) -> Iterable[tuple[str, str]]:
    """Yield the columns of a target with their expressions."""
    name = target.column.name
    if target.column.type is ColumnType.CATEGORY:
        if name == "sex" and "gender_concept_id" in tables["person"].columns:
            yield name, SEX
        return
    if target.of_person:
        if "measurement_date" in tables["measurement"].columns:
            yield name, AGE
        return
    where = _condition(target, concepts)
    if not where:
        return
    value = "m.value_as_number::numeric"
    if units:
        stated = _unit_cases(target, concepts)
        yield name, f"avg(CASE {stated} END) FILTER (WHERE {where})"
    unknown = " AND COALESCE(m.unit_concept_id, 0) = 0" if units else ""
    yield name + RAW, f"avg({value}) FILTER (WHERE {where}{unknown})"


def _condition(target: Target, concepts: bool) -> str:
    codes = target.codes
    numbers = target.concept.omop if target.concept and not target.unknown_code else ()
    parts = []
    if concepts and codes:
        listed = ", ".join(_text(code) for code in sorted(codes))
        parts.append(f"c.concept_code IN ({listed})")
    if numbers:
        parts.append(f"m.measurement_concept_id IN ({', '.join(map(str, numbers))})")
    return f"({' OR '.join(parts)})" if parts else ""


def _unit_cases(target: Target, concepts: bool) -> str:
    """Return the cases of a row's unit, each with the value in the dictionary's."""
    cases = []
    for unit, (factor, offset) in target.units().items():
        number = UNITS.get(unit)
        if not concepts and number is None:
            continue
        value = "m.value_as_number::numeric"
        value = value if factor == 1 else f"{value} * {factor:.12g}"
        value = value if offset == 0 else f"{value} + {offset:.12g}"
        tests = [f"u.concept_code = {_text(unit)}"] if concepts else []
        tests += [f"m.unit_concept_id = {number}"] if number is not None else []
        cases.append(f"WHEN {' OR '.join(tests)} THEN {value}")
    return " ".join(cases) or "WHEN false THEN 0"


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
