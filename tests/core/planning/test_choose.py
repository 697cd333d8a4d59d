"""Meaning of `auto`, and advice to a study before any question."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.algorithms.recommended.auto import WIDE
from eigenveil.errors import Code
from eigenveil.planning.choose import (
    CANDIDATES,
    candidates,
    choose,
    make_plan,
    noise_warnings,
    remedies_text,
)
from eigenveil.planning.error_models.assumed_records import AssumedSpectrum, default_spectrum
from eigenveil.planning.predict import Prediction, predict, predict_all
from eigenveil.planning.recommend import recommend
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Choose, Federation, Study, Trust
from tests.support import a_study, refused


def an_auto(d: int = 30, **changes: Any) -> Study:
    """A study that leaves the choice open."""
    return a_study(d, algorithm=Algorithm.AUTO, **changes)


def on_offer(study: Study, assumed_spectrum: AssumedSpectrum) -> tuple[Prediction, ...]:
    """Candidates of `auto`: enough for advice about these."""
    return tuple(predict(study, one, assumed_spectrum) for one in CANDIDATES)


@pytest.mark.parametrize("d", [1, 2, 8, 30, 100, 300, 2000])
@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("radius", [None, 0.8, 1.0])
def test_auto_is_always_one_of_the_candidates(d: int, neighbours: Neighbours, radius: float | None) -> None:
    for k in {1, min(d, 5), min(d, 60)}:
        study = an_auto(d, components=k, neighbours=neighbours, radius=radius, expected_records=3000)
        assert choose(study) in CANDIDATES
        assert choose(study) is choose(replace(study))
        assert choose(replace(study, delta=0.0)) is Algorithm.GAUSS_COV


def test_a_matrix_too_wide_to_send_is_not_chosen() -> None:
    assert choose(an_auto(WIDE, expected_records=10**6)) is Algorithm.REFINED_COV
    study = an_auto(WIDE + 1, expected_records=10**6)
    assert choose(study) is Algorithm.REFINED_PCA
    assert not {Algorithm.REFINED_COV, Algorithm.GAUSS_COV} & set(candidates(study))


@pytest.mark.parametrize(
    ("d", "n", "epsilon", "k"), [(15, 566, 0.5, 3), (30, 569, 1.0, 3), (65, 1700, 0.5, 5)]
)
def test_too_many_components_are_refused_with_a_usable_number(d: int, n: int, epsilon: float, k: int) -> None:
    study = an_auto(d, components=k, expected_records=n, epsilon=epsilon)
    (sentence,) = noise_warnings(study)
    message = re.search(r"components = (\d+) would be usable", sentence)
    assert message is not None
    few = int(message[1])
    assert 1 <= few < k
    assert noise_warnings(replace(study, components=few)) == ()
    advice = recommend(study, assumed_spectrum := default_spectrum(d, k), on_offer(study, assumed_spectrum))
    assert f"components = {few} would do" in advice.warnings[-1]


@pytest.mark.parametrize(
    ("algorithm", "few", "many"),
    [
        (Algorithm.GAUSS_COV, True, False), (Algorithm.DP_PCA_SINGLE_PASS, True, False),
        (Algorithm.SMOOTH_CAUCHY, True, False), (Algorithm.ZERO, False, False),
        (Algorithm.SUBSPACE_EXACT, False, False),
    ],
)  # fmt: skip
def test_mostly_noise_is_announced_if_records_are_too_few(
    algorithm: Algorithm, few: bool, many: bool
) -> None:
    for records, warned in ((100, few), (10**6, many)):
        found = noise_warnings(a_study(5, algorithm=algorithm, expected_records=records))
        assert any("mostly noise" in one for one in found) is warned, (algorithm, records)


def test_under_secure_aggregation_nothing_that_needs_exact_sums_is_offered_or_chosen() -> None:
    assumed_spectrum = default_spectrum(30, 1)
    secure = an_auto(trust=Trust.SECURE_AGGREGATION, federation=Federation(sites=("a", "b", "c")))
    found = {one.algorithm: one for one in predict_all(secure, assumed_spectrum)}
    for algorithm, one in found.items():
        if algorithm.properties.trusted and algorithm.properties.federated:
            assert one.refused is not None, algorithm
    assert recommend(secure, assumed_spectrum, tuple(found.values())).algorithm in CANDIDATES
    for study in (secure, replace(secure, choose=Choose.DURING), replace(secure, epsilon=50.0)):
        assert make_plan(study).gaussian
    with refused(Code.BAD_STUDY, "which secure aggregation cannot add"):
        make_plan(replace(secure, delta=0.0))
    stronger = replace(secure, epsilon=60.0)
    assert all("at most 50" in (predict(stronger, one).refused or "") for one in CANDIDATES)
    none = recommend(stronger, assumed_spectrum, predict_all(stronger, assumed_spectrum))
    assert (none.algorithm, "too small" in none.reason) == (None, False)
    assert "epsilon" in remedies_text(replace(secure, expected_records=500, epsilon=0.3), assumed_spectrum)


@pytest.mark.parametrize("epsilon", [0.05])
def test_an_epsilon_too_small_to_query_is_named_with_a_sufficient_one(epsilon: float) -> None:
    study, assumed_spectrum = (
        an_auto(10, components=2, expected_records=4000, epsilon=epsilon),
        default_spectrum(10, 2),
    )
    advice = recommend(study, assumed_spectrum, predict_all(study, assumed_spectrum))
    assert (advice.algorithm, advice.warnings) == (None, ())
    message = re.search(r"epsilon = (.*) is too small .* raise it to (.*) or more", advice.reason)
    assert message is not None
    assert float(message[1]) == epsilon
    enough, hardly = (replace(study, epsilon=times * float(message[2])) for times in (1.0, 0.85))
    assert recommend(enough, assumed_spectrum, on_offer(enough, assumed_spectrum)).algorithm in CANDIDATES
    assert recommend(hardly, assumed_spectrum, on_offer(hardly, assumed_spectrum)).algorithm is None


def test_a_far_better_algorithm_is_recommended_with_what_it_needs() -> None:
    study, assumed_spectrum = an_auto(), default_spectrum(30, 1)
    plain = predict(study, Algorithm.GAUSS_COV, assumed_spectrum)
    assert plain.error is not None
    less = replace(plain.error, median=plain.error.median / 3, raw=plain.raw / 3)
    trusted = Prediction(algorithm=Algorithm.ADAPTIVE_COV, error=less, rounds=9, bytes_per_site=8, seconds=1)
    advice = recommend(study, assumed_spectrum, (trusted, plain))
    assert advice.algorithm is Algorithm.ADAPTIVE_COV
    assert "needs exact sums at the coordinator" in advice.reason
