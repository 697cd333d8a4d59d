"""The demonstration's records and where it puts them."""

from __future__ import annotations

from sklearn.datasets import load_breast_cancer

from eigenveil.study.algorithm import Algorithm
from eigenveil_client.demo.layout import demo_study, public_records


def test_the_packaged_records_are_those_of_scikit_learn() -> None:
    theirs, ours = load_breast_cancer(), public_records()
    assert (ours.values == theirs.data).all()
    assert ours.groups == tuple(theirs.target_names[theirs.target])
    assert ours.values.shape[1] == demo_study(3, Algorithm.AUTO, 2, 2.0).dimension
