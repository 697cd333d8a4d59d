"""[P7] A prior in a study and its plan: what is carried, what is refused, and who can read it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil import parse_study
from eigenveil.errors import Code, EigenveilError
from eigenveil.numerics.encoding import canonical
from eigenveil.priors import prior_from_rows
from eigenveil.protocol.plan import plan_from_json, plan_to_dict
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.prior import AXIS_STEPS, MOST_ENTRIES, Prior, axes_in_plan, encode_axes
from eigenveil.study.scaling import Scaling
from eigenveil.study.study import Choose, Study
from eigenveil.study.toml import study_from_dict, study_to_dict, study_to_toml
from tests.support import a_plan, a_study, refused

D = 4


def prior(**changes: Any) -> Prior:
    values: dict[str, Any] = {
        "source": "loadings", "sha256": "ab" * 32, "scaling": "bounds", "variances": (1.0, 0.5),
        "level": 0.125, "axes": encode_axes(np.eye(D)[:2]),
    }  # fmt: skip
    return Prior(**(values | changes))


def study(**changes: Any) -> Study:
    found: dict[str, Any] = {
        "algorithm": Algorithm.REFINED_COV,
        "scaling": Scaling.BOUNDS,
        "prior": prior(),
    } | changes
    return replace(a_study(D), **found)


@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_axes_return_orthonormal_and_within_a_grid_step(d: int, seed: int) -> None:
    axes = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0][: axes_in_plan(d)]
    one = prior(variances=(1.0,) * len(axes), level=1.0, axes=encode_axes(axes))
    assert np.abs(one.directions(d) - axes).max() <= 0.5 / AXIS_STEPS


@given(st.integers(1, 20_000))
def test_the_axes_of_a_plan_are_few_numbers(d: int) -> None:
    assert 1 <= axes_in_plan(d) <= d
    assert axes_in_plan(d) * d <= max(MOST_ENTRIES, d)


@pytest.mark.parametrize(("changes", "words"), [
    ({"sha256": "ab"}, "sha256"), ({"variances": ()}, "variances"), ({"variances": (0.5, 1.0)}, "fall"),
    ({"variances": (float("nan"), 0.5)}, "numbers"), ({"level": 2.0}, "fall"), ({"level": -1.0}, "0 or more"),
    ({"signer": "cd" * 32}, "signer"), ({"source": "release"}, "signer"), ({"source": "guess"}, "source"),
    ({"shared_sites": ("north",)}, "shared sites"), ({"scaling": "log"}, "scaling"),
])  # fmt: skip
def test_an_invalid_value_is_refused(changes: dict[str, Any], words: str) -> None:
    with refused(Code.BAD_STUDY, words):
        prior(**changes)


@pytest.mark.parametrize(("changes", "words"), [
    ({"axes": encode_axes(np.eye(D)[:2] * 0.99)}, "orthonormal"),
    ({"axes": encode_axes(np.ones((2, D)) / 2)}, "orthonormal"),
    ({"axes": encode_axes(np.eye(D)[:1])}, "16 bits"), ({"axes": "ä"}, "base64"), ({"axes": "=,"}, "base64"),
    ({"scaling": "standard"}, 'scaling = "standard"'),
    ({"source": "release", "signer": "cd" * 32, "shared_sites": ("west",)}, "west"),
])  # fmt: skip
def test_a_prior_of_another_study_is_refused_before_a_plan(changes: dict[str, Any], words: str) -> None:
    with refused(Code.BAD_STUDY, words):
        replace(study(), prior=prior(**changes))


def test_a_study_with_a_prior_is_the_same_in_a_file_and_in_a_plan() -> None:
    one = study()
    assert parse_study(study_to_toml(one)) == study_from_dict(study_to_dict(one)) == one
    plan = a_plan(one)
    assert a_plan(study(algorithm=Algorithm.AUTO)).algorithm is Algorithm.REFINED_COV
    assert (plan.algorithm, plan_from_json(plan.to_json())) == (Algorithm.REFINED_COV, plan)
    assert any("loadings" in sentence for sentence in plan.study.warnings())


def test_a_plan_without_a_prior_has_no_word_of_it() -> None:
    assert b"prior" not in a_plan().to_json()
    assert plan_to_dict(a_plan())["required"] == []


def test_a_reader_must_know_a_prior() -> None:
    """A program of 1.0 refuses each plan that requires something."""
    plan = a_plan(study())
    written = plan_to_dict(plan)
    assert written["required"] == ["study.prior"]
    for required in ([], ["study.prior", "study.later"]):
        with pytest.raises(EigenveilError, match=r"canonical|study\.later"):
            plan_from_json(canonical(written | {"required": required}))
    with refused(Code.BAD_STUDY, "from version 8"):
        replace(plan, version=7)


def test_a_changed_prior_is_another_plan() -> None:
    plan = a_plan(study())
    for changes in ({"sha256": "cd" * 32}, {"variances": (1.0, 0.25)}, {"axes": encode_axes(np.eye(D)[1:3])}):
        assert a_plan(replace(study(), prior=prior(**changes))).digest != plan.digest


@pytest.mark.parametrize(("changes", "words"), [
    ({"algorithm": Algorithm.GAUSS_COV}, "takes no prior"),
    ({"algorithm": Algorithm.AUTO, "choose": Choose.DURING}, "takes no prior"),
    ({"algorithm": Algorithm.AUTO, "delta": 0.0}, "takes no prior"),
    ({"components": D}, "as many components"),
])  # fmt: skip
def test_a_prior_that_no_step_would_use_is_refused(changes: dict[str, Any], words: str) -> None:
    with refused(Code.BAD_STUDY, words):
        a_plan(study(**changes))


def test_the_plan_carries_no_row() -> None:
    rows = np.random.default_rng(0).uniform(1, 99, (40, D))
    plan = a_plan(study(prior=prior_from_rows(rows, study())))
    carried = json.loads(plan.to_json())["study"]["prior"]
    assert len(carried["variances"]) == D
    assert set(carried) == {
        "source", "sha256", "scaling", "variances", "level", "axes", "signer", "shared_sites",
    }  # fmt: skip
