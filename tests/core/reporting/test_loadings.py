"""Loadings, their errors and sentences, and the warnings of a result, as every view shows them."""

from __future__ import annotations

import re
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil import Column, RequestError, Simulation, simulate
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.reporting.loadings import ComponentLoadings, Loading, loading_errors
from eigenveil.reporting.report import render
from eigenveil.study.algorithm import Algorithm
from tests.core.study.test_scaling import NAMES, clinical
from tests.support import Patch, a_study

CENTRES, SPREADS = (55.0, 130, 80, 27, 110, 200), (18.0, 18, 11, 5, 40, 40)


@cache
def misleading(scaling: str = "bounds", algorithm: Algorithm = Algorithm.AUTO, k: int = 2) -> Simulation:
    """A run of the six measurements, of which all vary about alike with one factor."""
    generator = np.random.default_rng(1)
    factor, rest = generator.normal(size=(3000, 1)), generator.normal(size=(3000, 6))
    records = np.array(CENTRES) + np.array(SPREADS) * (0.6 * factor + 0.8 * rest)
    study = clinical(sites=("a",), scaling=scaling, algorithm=algorithm, components=k, expected_records=3000)
    return simulate(study, {"a": records}, seed=1)


def component(
    values: list[float], errors: list[float] | None = None, from_noise: bool = False
) -> ComponentLoadings:
    stated: list[float | None] = [None] * len(values) if errors is None else [*errors]
    pairs = enumerate(zip(values, stated, strict=True))
    loadings = tuple(Loading(column=f"c{i}", value=v, error=e) for i, (v, e) in pairs)
    return ComponentLoadings(number=1, variance=1.0, share=0.5, loadings=loadings, from_noise=from_noise)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30).filter(lambda v: sum(x * x for x in v) > 1e-3))
def test_a_sentence_names_the_fewest_columns_with_two_thirds_of_the_component(values: list[float]) -> None:
    one = component(values)
    squares = sorted((v * v for v in values), reverse=True)
    taken = len(one.largest)
    assert sum(squares[:taken]) >= 2 / 3 * sum(squares) * (1 - 1e-9)
    assert sum(squares[: taken - 1]) < 2 / 3 * sum(squares)
    assert one.sentence.startswith("mostly ")


@pytest.mark.parametrize(("values", "errors", "sentence"), [
    ([0.98, 0.2], [0.05, 0.3], "mostly c0"),
    ([0.7, -0.7, 0.1], [0.1, 0.1, 0.1], "mostly c0, against c1"),
    ([0.6, 0.6, 0.5], [0.1, 0.1, 0.6], "mostly c0 and c1"),
    ([0.5, 0.5, 0.5, 0.5], [0.1, 0.6, 0.6, 0.6], "in part c0; the rest is not distinguishable from noise"),
    ([0.8, 0.6], [0.9, 0.9], "not distinguishable from noise"),
    ([0.8, 0.6], None, "mostly c0 and c1 (no error is stated)"),
])  # fmt: skip
def test_a_loading_within_its_error_is_not_named(
    values: list[float], errors: list[float] | None, sentence: str
) -> None:
    assert component(values, errors).sentence == sentence
    assert component(values, errors, from_noise=True).sentence == "not distinguishable from noise"


def test_many_columns_are_counted() -> None:
    assert component([0.2] * 25, [0.1] * 25).sentence.startswith("mostly 17 columns, most of all c0, c1")


def test_an_interval_stays_within_one_and_is_rounded_up() -> None:
    loading = Loading(column="a", value=0.98, error=0.041)
    assert loading.interval == (0.98 - 0.041, 1.0)
    assert str(loading) == "+0.98 ± 0.05"
    assert str(Loading(column="a", value=-0.2, error=None)) == "−0.20"
    assert Loading(column="a", value=0.5, error=None).interval is None


@pytest.mark.parametrize("algorithm", [Algorithm.GAUSS_COV, Algorithm.REFINED_COV, Algorithm.DP_PCA])
@pytest.mark.parametrize("k", [1, 3])
def test_errors_cover_what_noise_changes_and_not_everything(algorithm: Algorithm, k: int) -> None:
    """Of all loadings at most a tenth are off by more; an error that is no error would be 1 everywhere."""
    generator = np.random.default_rng(7)
    records = 50 + generator.normal(size=(4000, 5)) * [14, 10, 6, 3, 2]
    truth = eigenpairs(np.cov((records - 50).T))[1][:, :k].T
    outside, errors = [], []
    for seed in range(6):
        study = a_study(
            5, sites=("a",), components=k, epsilon=2.0, algorithm=algorithm, expected_records=4000
        )
        result = simulate(study, {"a": records}, seed=seed).result
        error = loading_errors(result)
        assert error is not None
        signs = np.sign((result.components * truth).sum(axis=1, keepdims=True))
        outside.append(np.abs(signs * result.components - truth) > error)
        errors.append(error)
    assert np.mean(outside) <= 0.1
    assert np.median(errors) < 0.3


def test_no_error_is_stated_where_the_release_states_none() -> None:
    run = misleading(algorithm=Algorithm.GAUSS_COV)
    study = clinical(sites=("a",), scaling="bounds", algorithm=Algorithm.GAUSS_COV, radius=0.7)
    silent = simulate(study, {"a": np.tile(CENTRES, (200, 1)) + np.eye(200, 6)}, seed=1)
    assert silent.result.predicted_sin_angle is None
    assert all(one.error is None for one in silent.loadings[0].loadings)
    assert all(one.error is not None for one in run.loadings[0].loadings)


@pytest.mark.parametrize("algorithm", [Algorithm.REFINED_COV, Algorithm.DP_PCA])
def test_a_released_study_by_bounds_warns_and_names_the_column_that_is_the_component(
    algorithm: Algorithm,
) -> None:
    run = misleading(algorithm=algorithm)
    assert run.loadings[0].sentence == "mostly age"
    (warning,) = (one for one in run.warnings if "widths of the bounds" in one)
    assert "age varies most" in warning
    assert ("Moments.of(result)" in warning) is (run.result.noise is not None)
    pages = {"card": repr(run), "notebook": run._repr_html_(), "report": render(run)}
    for name, page in pages.items():
        plain = page.replace("&#34;", '"').replace("&quot;", '"').replace("&#39;", "'")
        assert warning in plain, name
        assert "mostly age" in page, name
        assert str(run.loadings[0].strongest[0]) in page, name
    assert run.loadings[0].strongest_text in pages["report"]


def test_correlations_have_no_warning_and_show_all_columns() -> None:
    run = misleading("standard")
    assert not any("widths of the bounds" in one for one in run.warnings)
    assert len(run.loadings[0].largest) >= 4


def test_a_card_of_many_columns_has_those_that_its_components_name() -> None:
    records = np.random.default_rng(0).normal(size=(2000, 14)) * np.arange(14, 0, -1) / 14
    run = simulate(a_study(14, sites=("a",), components=2, epsilon=8.0), {"a": records}, seed=0)
    table = repr(run).split("Loadings")[1]
    shown = {line.split()[0] for line in table.splitlines() if line.startswith("  c")} - {"column"}
    assert shown == {loading.column for one in run.loadings for loading in one.named}


def test_a_card_obeys_nothing_in_a_name_and_loads_nothing() -> None:
    columns = tuple(
        Column(name=name, unit=unit, lower=-4, upper=4)
        for name, unit in (("<script>", "a"), ("b&\u00b5", "kg"))
    )
    study = a_study(columns=columns, sites=("a",), algorithm=Algorithm.GAUSS_COV, epsilon=8.0)
    run = simulate(study, {"a": np.random.default_rng(0).normal(size=(2000, 2)) * [3, 1]}, seed=0)
    html = run._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert not re.search(r"(?:src|href)=(?![\"']data:)", html)
    assert "color:" not in html.replace("background:#fff", ""), "text has the notebook's own colours"


def test_a_data_frame_has_a_row_for_each_column() -> None:
    run = misleading()
    frame = run.to_dataframe()
    assert list(frame.index) == list(NAMES)
    assert list(frame["unit"]) == [one.unit for one in run.plan.study.columns]
    assert np.array_equal(frame["component 2"], run.result.components[1])
    assert list(frame["error 1"]) == [one.error for one in run.loadings[0].loadings]


def test_without_pandas_a_data_frame_says_what_to_install(monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RequestError, match=f"{sys.executable} -m pip install pandas"):
        misleading().to_dataframe()
