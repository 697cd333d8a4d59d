"""Scaling of a study: its default, its meaning on the wire, and the warning before a study is paid for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example as with_example
from hypothesis import given
from hypothesis import strategies as st

from eigenveil import PublicNorm, explain, make_plan
from eigenveil.dictionary.directory import Directory, directory_from_dict
from eigenveil.dictionary.formats import parse_dictionary
from eigenveil.planning.error_models.assumed_records import default_spectrum
from eigenveil.planning.recommend import recommend
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.checks import plain_fields
from eigenveil.study.scaling import PlausibleSpread
from eigenveil.study.study import Column, Scaling, Study
from eigenveil.study.toml import draft_from_toml, parse_study, sent_study, study_to_dict, study_to_toml
from eigenveil_common.examples import example
from tests.support import a_column, a_study

DICTIONARY = parse_dictionary(example("dictionary"))
NAMES = ("age", "systolic_bp", "diastolic_bp", "bmi", "glucose", "total_cholesterol")


def clinical(**changes: Any) -> Study:
    """The six measurements of the shipped dictionary, glucose from 10 to 1,500."""
    columns = tuple(DICTIONARY.usable()[name] for name in NAMES)
    values: dict[str, Any] = {"columns": columns, "algorithm": Algorithm.AUTO} | changes
    return a_study(**values)


def unscaled(study: Study) -> str:
    """The text of a study that states no scaling."""
    return "".join(one for one in study_to_toml(study).splitlines(True) if not one.startswith("scaling"))


def test_a_study_by_wide_bounds_in_several_units_warns_before_it_is_paid_for() -> None:
    study, spreads = clinical(scaling="bounds"), DICTIONARY.spreads()
    (warning,) = study.warnings(spreads)
    assert "age will dominate" in warning
    assert 'scaling = "standard"' in warning
    assert warning in explain(make_plan(study), spreads=spreads)["warnings"]
    spectrum = default_spectrum(study.dimension, study.components)
    assert warning in recommend(study, spectrum, [], spreads).warnings
    (unnamed,) = study.warnings()
    assert "different units (a, mm[Hg], kg/m2 and 1 more)" in unnamed
    for quiet in (
        {"scaling": "standard"},
        {"scaling": "none"},
        {"columns": study.columns[:1], "scaling": "bounds"},
    ):
        assert clinical(**quiet).warnings(spreads) == ()


def test_spreads_in_another_unit_and_equal_bounds_name_no_column() -> None:
    study, spreads = clinical(scaling="bounds"), DICTIONARY.spreads()
    other = {name: replaced._replace(unit="furlong") for name, replaced in spreads.items()}
    assert study.warnings(other) == study.warnings()
    alike = tuple(a_column(name, 0, 100) for name in "ab")
    wide = {
        "a": spreads["age"]._replace(unit="year", spread=90.0),
        "b": spreads["age"]._replace(unit="year", spread=5.0),
    }
    assert a_study(columns=alike).warnings(wide) == ()
    uneven = (*alike[:1], a_column("b", 0, 1000), a_column("c", 0, 1000))
    (warning,) = a_study(columns=uneven).warnings(wide | {"c": wide["b"]})
    assert "a will dominate" in warning


@pytest.mark.parametrize("scaling", Scaling)
@pytest.mark.parametrize(("steps", "coarse"), [(29.0, True), (31.0, False)])
def test_bounds_with_few_grid_steps_a_spread_are_named_with_right_ones(
    scaling: Scaling, steps: float, coarse: bool
) -> None:
    narrow, wide = a_column("a", -1, 1), a_column("b", 0, 4000)
    half = 2000 if scaling is Scaling.NONE else 1
    spread = steps * half / 4096
    study = a_study(columns=(narrow, wide), scaling=scaling)
    spreads = {"a": PlausibleSpread("year", spread), "b": PlausibleSpread("year", 500.0)}
    found = [one for one in study.warnings(spreads) if "grid steps" in one]
    assert bool(found) is coarse
    assert all(f"a ({steps:.2g} steps; {10 * spread:.2g} year apart)" in one for one in found)


def test_a_column_within_right_bounds_needs_a_finer_grid() -> None:
    study = a_study(columns=(a_column("a", -1, 1),), scaling=Scaling.BOUNDS, grid_steps=64)
    (found,) = study.warnings({"a": PlausibleSpread("year", 0.25)})
    assert "a (16 steps):" in found
    assert found.endswith("use a larger grid_steps")


UNITS = st.sampled_from(["", "1", "a", "kg"])


@with_example(["", "1"], Algorithm.AUTO, True, False)
@with_example(["a", "kg"], Algorithm.AUTO, True, False)
@given(st.lists(UNITS, min_size=1, max_size=4), st.sampled_from(Algorithm), st.booleans(), st.booleans())
def test_a_study_that_states_none_is_standard_exactly_where_units_differ_and_it_can_be(
    units: list[str], algorithm: Algorithm, centring: bool, norm: bool
) -> None:
    columns = tuple(Column(name=f"c{i}", unit=one, lower=0, upper=1) for i, one in enumerate(units))
    values: dict[str, Any] = {"algorithm": algorithm, "centring": centring, "columns": columns}
    values |= {"radius": PublicNorm(norm=1.0) if norm else None}
    several = len({one or "1" for one in units}) > 1
    possible = centring and not norm and not algorithm.properties.exact_rows
    study = a_study(**values)
    assert (study.scaling is Scaling.STANDARD) is (several and possible)
    assert study.scaling in (Scaling.STANDARD, Scaling.BOUNDS)
    for stated in Scaling:
        if possible or stated is not Scaling.STANDARD:
            assert a_study(**values, scaling=stated).scaling is stated


def test_python_toml_and_a_draft_have_one_default_and_a_text_on_the_wire_keeps_its_meaning() -> None:
    study = clinical()
    assert study.scaling is Scaling.STANDARD
    text = unscaled(study)
    assert parse_study(text) == study
    draft = draft_from_toml(text).with_scaling()
    assert sent_study(draft.text) == parse_study(draft.text) == study
    assert sent_study(text) == replace(study, scaling=Scaling.BOUNDS)
    assert study_to_dict(study)["records"]["scaling"] == "standard"
    stated = draft_from_toml(study_to_toml(replace(study, scaling=Scaling.NONE)))
    assert stated.with_scaling() is stated


def test_plausible_spreads_reach_the_planner_of_a_coordinator() -> None:
    directory = Directory(
        federation="f", sites={}, columns=None, approval_seconds=1.0, spreads=DICTIONARY.spreads()
    )
    read = directory_from_dict(plain_fields(directory))
    assert read.spreads == DICTIONARY.spreads()
    assert read.spreads["age"].unit == "a"
    assert "sex" not in read.spreads
