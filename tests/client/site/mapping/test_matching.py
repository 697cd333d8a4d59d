"""Columns are proposed by name, code, unit and range; what is not sure of all is a question."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn
from eigenveil.errors import Code
from eigenveil_client.records.discovery.columns import SeenColumn, seen_column
from eigenveil_client.records.discovery.look import look_at
from eigenveil_client.records.discovery.tables import PossibleTable
from eigenveil_client.records.discovery.words import Marks
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.config import site_dictionary
from eigenveil_client.site.mapping.changes import parse_setting
from eigenveil_client.site.mapping.matching import ProposedMapping, confirmed, propose
from eigenveil_client.site.mapping.measurements.concepts import CONCEPTS, MeasurementConcept
from eigenveil_client.site.mapping.omop import CONCEPT, NEEDED, omop_select
from eigenveil_client.site.mapping.targets import targets
from tests.client.records.discovery.messy import messy_file, right_dialect
from tests.client.site.mapping.scores import columns
from tests.support import refused

DICTIONARY = site_dictionary(None)
KNOWN = {one.column.name: one for one in targets(DICTIONARY)}


def numbers(header: str, middle: float, width: float = 0.1, count: int = 200) -> SeenColumn:
    """A column of numbers near `middle`, in three significant digits."""
    rng = random.Random(header)
    words = Counter(f"{middle * (1 + width * rng.gauss(0, 1)):.3g}" for _ in range(count))
    return seen_column(header, words, Marks())


def of_words(header: str, *words: str) -> SeenColumn:
    return seen_column(header, Counter(dict.fromkeys(words, 50)), Marks())


def only(*columns: SeenColumn) -> ProposedMapping:
    (found,) = propose(columns, DICTIONARY)
    return found


def middle(concept: MeasurementConcept, unit: str) -> float:
    """A usual median of a concept, in one of its units."""
    factor, offset = concept.units[unit]
    return ((concept.typical[0] * concept.typical[1]) ** 0.5 - offset) / factor


@pytest.mark.parametrize("concept", CONCEPTS, ids=lambda one: one.name)
def test_every_name_of_a_measurement_is_sure_in_the_dictionarys_unit(concept: MeasurementConcept) -> None:
    values = middle(concept, concept.unit)
    for name in (concept.name, *concept.names, f"labs_{concept.name}", f"{concept.name} ({concept.unit})"):
        found = propose([numbers(name, values, width=0.02)], DICTIONARY)
        assert [one.column for one in found] == [concept.name], name
        doubt = found[0].question
        assert not doubt or "its unit is not stated" in doubt, (name, doubt)


@pytest.mark.parametrize("concept", CONCEPTS, ids=lambda one: one.name)
def test_a_stated_unit_is_converted(concept: MeasurementConcept) -> None:
    for unit, linear in concept.units.items():
        column = numbers(f"{concept.name} [{unit}]", middle(concept, unit), width=0.02)
        found = only(column)
        assert (found.column, found.certain) == (concept.name, True), found
        assert found.linear == pytest.approx(linear), unit


@pytest.mark.parametrize(
    ("header", "values"),
    [
        *[("urine_glucose", 15), ("Alter der Mutter", 30), ("target_weight", 72), ("delta_hba1c", 6.1)],
        *[("creatinine_clearance", 85), ("Natrium im Urin", 120), ("birth_weight", 3.4), ("hr_max", 140)],
        *[
            ("glucose_flag", 1),
            ("age_at_death", 80),
            ("LDL goal", 70),
            ("HDL ratio", 3.6),
            ("Na id", 140),
        ],
        *[("age_group", 3), ("father_height", 178), ("glucose_2h", 130), ("BMI percentile", 60)],
    ],
)
def test_another_measurement_with_the_name_inside_is_never_sure(header: str, values: float) -> None:
    assert not any(one.certain for one in propose([numbers(header, values)], DICTIONARY))


@pytest.mark.parametrize(
    ("header", "values", "column"),
    [
        *[("Harnstoff", 30, "urea_nitrogen"), ("glucose fasted", 99, "glucose"), ("BP", 128, "systolic_bp")],
        *[("potasium", 4.2, "potassium"), ("weight", 40, "body_weight"), ("crp", 4, "crp")],
        ("glucose [mmol/L]", 101, "glucose"), ("Alter", 700, "age"), ("T4", 1.2, "free_t4"),
        ("sodium [mmol/L]", 14, "sodium"), ("potassium (mmol/l)", 42, "potassium"),
        *[("TG", 1.4, "triglycerides"), ("LDL", 1.3, "ldl_cholesterol"), ("height", 68, "body_height")],
        *[("Fe", 60, "iron"), ("TP", 72, "total_protein")],
    ],
)  # fmt: skip
def test_a_doubt_is_a_question(header: str, values: float, column: str) -> None:
    found = propose([numbers(header, values)], DICTIONARY)
    assert [one.column for one in found] == [column]
    assert found[0].question


@pytest.mark.parametrize(
    ("header", "values", "factor"),
    [
        *[("glucose", 5.4, 18.0156), ("glucose", 101, 1), ("Krea", 82, 0.011312), ("Krea", 0.9, 1)],
        *[("Hb", 8.6, 1.6114), ("Hb", 138, 0.1), ("Chol", 5.1, 38.665), ("HbA1c", 42, 0.09148)],
        ("calcium", 2.35, 4.0078), ("height", 1.72, 100), ("temperature", 98.4, 5 / 9),
    ],
)  # fmt: skip
def test_a_unit_that_is_not_stated_follows_from_the_values(header: str, values: float, factor: float) -> None:
    found = only(numbers(header, values, width=0.01))
    assert found.certain, found
    assert found.linear[0] == pytest.approx(factor)


def of_federation(*columns: dict[str, Any]) -> Dictionary:
    """A dictionary that a coordinator writes for its own ends."""
    usual: dict[str, Any] = {"meaning": "x", "lower": 0.0, "upper": 1000.0, "source": "s", "unit": "mg/dL"}
    return Dictionary(name="d", version=1, columns=tuple(DictionaryColumn(**usual | one) for one in columns))


RANGES = [
    {"name": f"glucose_{low}_{low + 10}", "plausible_lower": float(low), "plausible_upper": low + 10.0}
    for low in range(60, 200, 10)
]
LEVELS = [
    {"type": "category", "upper": 1.0, "unit": "", "levels": ("female", "male", level)} for level in "xmw"
]


@pytest.mark.parametrize("code", ["2345-7", "1558-6"])
def test_ranges_of_a_federation_do_not_tell_where_values_lie(code: str) -> None:
    """Neither many columns for one measurement, nor one with bounds of the coordinator's choice."""
    many = of_federation(*({"loinc": code} | one for one in RANGES))
    for middle in (85, 125):
        for header in ("Glukose (mg/dl)", "1558-6 (mg/dl)"):
            assert not any(one.certain for one in propose([numbers(header, middle, 0.01)], many))
    two = of_federation({"name": "g1", "loinc": "2345-7"}, {"name": "g2", "loinc": "2345-7", "unit": "kg"})
    assert not propose([numbers("Glukose (mg/dl)", 101)], two)[0].certain
    found = {
        propose([numbers("glucose", 125)], of_federation({"name": "glucose", "loinc": "2345-7"} | bounds))[0]
        for bounds in ({}, {"plausible_lower": 1.0, "plausible_upper": 2.0}, {"lower": 990.0})
    }
    assert len(found) == 1


def test_levels_of_a_federation_do_not_tell_which_words_are_there() -> None:
    columns = [{"name": name} | one for name, one in zip(("sex", "SEX", "s e x"), LEVELS, strict=True)]
    for dictionary in (of_federation(*columns), *map(of_federation, columns)):
        assert not any(one.certain for one in propose([of_words("sex", "w", "m")], dictionary))


def test_a_measurement_that_is_not_known_here_needs_a_stated_unit() -> None:
    dictionary = of_federation({"name": "tumour_marker", "unit": "U/L"}, {"name": "score", "unit": ""})
    for middle in (3, 3000):
        assert propose([numbers("tumour_marker [U/L]", middle)], dictionary)[0].certain
        (size, score) = propose([numbers("tumour_marker", middle), numbers("score", middle)], dictionary)
        assert (size.certain, size.units, score.certain, score.units) == (False, ("U/L",), False, ())
    known = {one.column.name: one for one in targets(dictionary)}
    assert confirmed(numbers("score", 3), known["score"]).unit == ""


@pytest.mark.parametrize(
    ("header", "column", "code", "words"),
    [
        ("Glukose (mg/dl)", "body_height", "2345-7", "LOINC 2345-7, is that of glucose"),
        ("body_height", "body_height", "2345-7", "LOINC 2345-7, is that of glucose"),
        ("25836-8 (mg/dl)", "glucose", "25836-8", "LOINC 25836-8 is not known here"),
    ],
)
def test_a_code_that_is_not_the_names_is_a_question(header: str, column: str, code: str, words: str) -> None:
    (found,) = propose([numbers(header, 101)], of_federation({"name": column, "loinc": code}))
    assert words in found.question


def test_reasons_tell_by_what_a_column_was_found() -> None:
    dictionary = of_federation({"name": "sugar", "loinc": "2345-7"})
    reasons = [propose([numbers(name, 101)], dictionary)[0].reason for name in ("sugar", "Glukose", "2345-7")]
    assert [one.partition(";")[0] for one in reasons] == [
        "sugar by its name", "sugar by the names of LOINC 2345-7, glucose",
        "sugar by LOINC 2345-7 in its name",
    ]  # fmt: skip


def test_columns_that_omop_selects_by_code_name_the_code() -> None:
    """A virus load under the name bmi, and one measurement under two names, are questions."""
    dictionary = of_federation(
        {"name": "bmi", "loinc": "25836-8", "unit": "kg/m2"}, {"name": "glucose", "loinc": "2345-7"},
        {"name": "other", "loinc": "14749-6"}, {"name": "sodium", "unit": "mmol/L"},
    )  # fmt: skip
    columns = [numbers("bmi", 25), numbers("glucose", 101), numbers("sodium", 140, 0.01)]
    selected = {one.header: one.header for one in columns}
    bmi, glucose, sodium = propose(columns, dictionary, selected=selected)
    assert "25836-8 is not known here" in bmi.question
    assert glucose.question == "Is 'glucose' glucose or other?"
    assert (sodium.certain, sodium.reason.partition(";")[0]) == (
        True,
        "sodium by the codes of sodium (LOINC 2951-2)",
    )
    tables = {
        name: PossibleTable(name=name, columns=(*columns, *CONCEPT)) for name, columns in NEEDED.items()
    } | {"concept": PossibleTable(name="concept", columns=CONCEPT)}
    select = omop_select(tables, targets(dictionary), ["bmi_raw"])
    assert "('25836-8')" in select
    assert "OR" not in select


def test_columns_that_compete_are_questions_each() -> None:
    first, second = numbers("glucose", 101), numbers("GLUC_MGDL", 102)
    found = propose([first, second], DICTIONARY)
    assert [one.column for one in found] == ["glucose"] * 2
    assert not any(one.certain for one in found)
    (one, other) = propose([first, numbers("potasium", 4.2)], DICTIONARY)
    assert (one.certain, other.certain) == (True, False)


def test_codes_name_a_column() -> None:
    assert only(numbers("2345-7", 101)).column == "glucose"
    assert only(numbers("LOINC 14749-6 mmol/L", 5.5)).linear[0] == pytest.approx(18.0156)
    assert propose([numbers("2345-8", 101)], DICTIONARY) == []  # another check digit


@pytest.mark.parametrize("words", [("f", "m"), ("weiblich", "männlich"), ("Female", "Male"), ("W", "M")])
def test_words_of_a_category_are_levels(words: tuple[str, str]) -> None:
    found = only(of_words("Geschlecht", *words))
    assert found.certain
    assert dict(found.levels) == dict(zip(words, ("female", "male"), strict=True))


def test_numbers_for_levels_are_a_question() -> None:
    found = only(of_words("sex", "1", "2"))
    assert "Which of its words" in found.question
    with refused(Code.BAD_ARGUMENT, "none of the words"):
        confirmed(of_words("sex", "1", "2"), KNOWN["sex"])
    stated = parse_setting(found.setting.replace("WORD=LEVEL,WORD=LEVEL", " 1=male, 2=female"))
    coded = confirmed(of_words("sex", "1", "2"), KNOWN[stated.column], stated.unit)
    assert dict(coded.levels) == {"1": "male", "2": "female"}
    with refused(Code.BAD_ARGUMENT, "'man' is no level"):
        confirmed(of_words("sex", "1", "2"), KNOWN["sex"], "1=man")


def test_a_person_states_the_unit_that_values_do_not_tell() -> None:
    column = numbers("crp", 4)
    with refused(Code.BAD_ARGUMENT, "State one of mg/L, mg/dL"):
        confirmed(column, KNOWN["crp"])
    assert confirmed(column, KNOWN["crp"], "mg/dl").linear == (10, 0)
    with refused(Code.BAD_ARGUMENT, "cannot be converted from 'kg'"):
        confirmed(column, KNOWN["crp"], "kg")


def test_questions_and_reasons_quote_no_value() -> None:
    """They stand in site.toml, which many people read."""
    seen = [
        numbers("crp", 4.321, width=0),
        numbers("glucose", 123.4, width=0.001),
        of_words("sex", "q1", "q2"),
    ]
    for one in propose(seen, DICTIONARY):
        for value in ("4.32", "123", "q1", "q2"):
            assert value not in one.question + one.reason


@pytest.mark.parametrize("first", [0, 15])
def test_messy_files_are_read_as_meant_with_no_wrong_column_without_a_question(
    first: int, tmp_path: Path
) -> None:
    counts = Counter[str]()
    for seed in range(first, first + 15):
        file, path = messy_file(seed), tmp_path / "records.csv"
        path.write_bytes(file.data)
        table = look_at(RecordsConfig(source=path))
        assert right_dialect(file, table), (file.style, table.config)
        counts.update(columns(file, table))
    assert counts["person wrong"] == 0
    assert counts["wrong without a question"] == 0
    assert counts["proposed"] >= 0.95 * (counts["proposed"] + counts["missed"])
    assert counts["certain"] >= 0.9 * counts["proposed"]


@pytest.mark.parametrize(
    ("height", "header", "question"),
    [
        (172, "Alter", ""),
        (84, "Alter", "'Größe' has values of children"),
        (84, "Alter (Jahre)", ""),
        (0.05, "Alter", ""),
    ],
)
def test_an_age_beside_the_height_of_children_is_asked_for_its_unit(
    height: float, header: str, question: str
) -> None:
    seen = [numbers(header, 25), numbers("Größe", height, width=0.02), numbers("BMI", 24, width=0.02)]
    found = propose(seen, DICTIONARY)
    assert next(one for one in found if one.header == "BMI").certain
    (age,) = (one for one in found if one.column == "age")
    assert (question in age.question) if question else age.certain, age
    assert age.setting == f"{header}=age{':UNIT' if question else ''}"
