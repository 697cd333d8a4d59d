"""A study at several epsilons: each is what `predict` says of it, and more never predicts worse."""

from __future__ import annotations

import pytest

from eigenveil import Algorithm, RequestError
from eigenveil.planning.predict import sweep
from tests.support import a_study

STUDY = a_study(d=6, components=2, expected_records=5000)
FITTED = (Algorithm.GAUSS_COV, Algorithm.REFINED_COV, Algorithm.DP_PCA)


@pytest.mark.parametrize("algorithm", [None, *FITTED])
def test_more_epsilon_predicts_no_larger_error(algorithm: Algorithm | None) -> None:
    found = sweep(STUDY, [8.0, 0.25, 1.0, 0.5, 4.0, 2.0], algorithm)
    epsilons, medians = [one.epsilon for one in found], [one.error.median for one in found]
    assert epsilons == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
    assert medians == sorted(medians, reverse=True)
    assert medians[0] > medians[-1]
    assert all(one.error.low <= one.error.median <= one.error.high for one in found)


def test_what_is_too_small_is_left_out_and_nothing_left_is_refused() -> None:
    assert [one.epsilon for one in sweep(STUDY, [1e-6, 2.0])] == [2.0]
    with pytest.raises(RequestError, match=r"no error can be predicted at these epsilons: .*raise epsilon"):
        sweep(STUDY, [1e-6, 1e-5])
