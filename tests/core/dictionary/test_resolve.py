"""A study of column names resolves to the study with all bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.dictionary.formats import parse_dictionary
from eigenveil.dictionary.study_files import complete, draft_from_fields, new_study_file
from eigenveil.errors import Code
from eigenveil.study.checks import toml_text
from eigenveil.study.study import Study
from eigenveil.study.toml import draft_from_toml, parse_study
from tests.core.dictionary.test_dictionary import SHIPPED
from tests.support import refused

KNOWN = parse_dictionary(SHIPPED)
USABLE = KNOWN.usable()
FRAME: dict[str, Any] = {
    "name": "one", "components": 1, "privacy": {"epsilon": 1.0, "delta": 1e-6}, "federation": {"sites": ["a"]}
}  # fmt: skip
chosen = st.lists(st.sampled_from(sorted(USABLE)), min_size=1, unique=True)


def resolved(*columns: Any) -> Any:
    """The study of these columns by the shipped dictionary, and what it states otherwise."""
    text = toml_text(FRAME | {"dictionary": "clinical", "columns": list(columns)})
    found = complete(draft_from_toml(text), KNOWN)
    assert "dictionary" not in found.text
    assert found.study() == parse_study(found.text)
    return found.study(), found.overrides


@given(chosen)
def test_a_column_name_resolves_to_its_dictionary_entry(names: list[str]) -> None:
    study, overrides = resolved(*names)
    assert study.columns == tuple(USABLE[name] for name in names)
    assert overrides == ()
    assert resolved(*({"name": name} for name in names))[0] == study


@given(st.sampled_from(sorted(USABLE)), st.floats(-1e3, 1e3), st.floats(1e4, 1e5), st.booleans())
def test_bounds_of_a_study_override_the_dictionary_and_are_reported(
    name: str, lower: float, upper: float, both: bool
) -> None:
    stated: dict[str, Any] = {"lower": lower, "upper": upper} if both else {"upper": upper}
    study, overrides = resolved({"name": name, **stated})
    assert study.columns == (replace(USABLE[name], **stated),)
    own = USABLE[name]
    if study.columns == (own,):
        assert overrides == ()
        return
    (message,) = overrides
    assert message.startswith(f"{name}: bounds ")
    assert message.endswith(f"in the dictionary {own.lower:.15g} to {own.upper:.15g}")


def test_another_unit_and_a_custom_column_are_reported() -> None:
    mine = {"name": "mine", "unit": "kg", "lower": 0, "upper": 1}
    study, overrides = resolved({"name": "total_cholesterol", "unit": "mmol/L", "upper": 26}, mine)
    assert [column.unit for column in study.columns] == ["mmol/L", "kg"]
    assert overrides == (
        "total_cholesterol: bounds 20 to 26, in the dictionary 20 to 1000",
        "total_cholesterol: unit 'mmol/L', in the dictionary 'mg/dL'",
        "mine: not in the dictionary clinical; unit and bounds are from the study",
    )


def test_every_unknown_name_is_reported_with_suggestions() -> None:
    with refused(Code.BAD_STUDY, "'agee' (did you mean 'age'?)", "'creatinin' (did you mean 'creatinine'"):
        resolved("agee", "bmi", {"name": "creatinin", "upper": 3})
    with refused(Code.BAD_STUDY, "'sex' (a category; use its levels: sex=female, sex=male)"):
        resolved("sex")


@pytest.mark.parametrize("columns", [7, [7], [{"unit": "kg"}], [["age"]], [{"name": 3}]])
def test_columns_without_names_are_refused(columns: Any) -> None:
    with refused(Code.BAD_STUDY, "column"):
        complete(draft_from_toml(toml_text(FRAME | {"columns": columns})), KNOWN)


def test_a_file_that_only_names_is_not_taken_for_a_study() -> None:
    for data in (FRAME | {"columns": ["age"]}, FRAME | {"dictionary": "clinical"}):
        with refused(Code.BAD_STUDY, "eigenveil study resolve"):
            parse_study(toml_text(data))
    with refused(Code.BAD_STUDY, "the name or the path of a dictionary"):
        draft_from_toml("dictionary = 3")


def written(columns: tuple[str, ...], **changes: Any) -> Study:
    """The study of a new file of these columns."""
    values = {
        "name": "new",
        "purpose": "",
        "sites": ("a", "b"),
        "components": 1,
        "epsilon": 1.0,
        "delta": 1e-6,
    }
    draft = draft_from_fields({**values, "columns": columns, "dictionary": "clinical", **changes})
    return complete(draft_from_toml(new_study_file(draft, KNOWN)), KNOWN).study()


@given(chosen, st.floats(1e-3, 10), st.lists(st.sampled_from("abcdef"), min_size=1, unique=True))
def test_a_new_study_file_states_its_choices(names: list[str], epsilon: float, sites: list[str]) -> None:
    study = written(tuple(names), epsilon=epsilon, sites=tuple(sites))
    assert study.columns == tuple(USABLE[name] for name in names)
    assert (study.epsilon, study.federation.sites) == (epsilon, tuple(sites))
