"""A loaded release: its arrays, its refusals, and the estimator it becomes."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from eigenveil import (
    Algorithm,
    Column,
    Federation,
    PrivatePCA,
    ReleasedResult,
    RequestError,
    Simulation,
    Study,
    load_release,
    simulate,
    verify_release,
)
from eigenveil.numerics.encoding import FloatArray
from eigenveil.reporting.document import signed_release, unsigned_release
from eigenveil.reporting.release_file import array_file
from tests.support import changed_member

KEY = Ed25519PrivateKey.from_private_bytes(bytes(31) + b"\1")
PUBLIC = KEY.public_key().public_bytes_raw()
NAMES = ("age", "cost ($)", "select", "名前 in the laboratory's words")
LOWS, HIGHS = BOUNDS = (0.0, -50.0, -4.0, 10.0), (120.0, 50.0, 6.0, 11.0)


def rows(n: int = 1500, seed: int = 0) -> FloatArray:
    """Records of columns that go together, each in its own unit and within its bounds."""
    generator = np.random.default_rng(seed)
    mixed = generator.normal(size=(n, 4)) @ generator.normal(size=(4, 4)) * 0.12
    middle, half = (np.add(LOWS, HIGHS) / 2, np.subtract(HIGHS, LOWS) / 2)
    return np.asarray(np.clip(middle + half * mixed, LOWS, HIGHS))


@cache
def simulation(algorithm: Algorithm = Algorithm.GAUSS_COV, components: int = 3, **changes: Any) -> Simulation:
    columns = tuple(
        Column(name=name, unit="mm", lower=low, upper=high)
        for name, low, high in zip(NAMES, LOWS, HIGHS, strict=True)
    )
    study = Study(
        name="pilot", columns=columns, delta=1e-6, components=components, algorithm=algorithm,
        federation=Federation(sites=("north", "south")), **{"epsilon": 5.0, **changes},
    )  # fmt: skip
    return simulate(study, {"north": rows()[:700], "south": rows()[700:]}, seed=1)


def sealed(found: Simulation | None = None) -> bytes:
    run = found or simulation()
    return signed_release(run.document, run.result, sign=KEY.sign, public_key=PUBLIC)


def released() -> ReleasedResult:
    return load_release(sealed())


def test_a_path_and_bytes_are_the_same_release(tmp_path: Path) -> None:
    path = tmp_path / "release.zip"
    path.write_bytes(sealed())
    for source in (path, str(path), sealed()):
        one = load_release(source)
        assert one.document == simulation().document
        assert one.result.to_dict() == simulation().result.to_dict()
        verify_release(one, PUBLIC)
        with pytest.raises(RequestError, match="signed by another key"):
            verify_release(one, bytes(32))


def changed(member: str) -> bytes:
    """The release with another mean, or with another SHA-256 of its mean in the document."""
    mean = simulation().result.mean
    old, new = array_file(mean), array_file(mean + 1e-9)
    if member == "release.json":
        old, new = (hashlib.sha256(one).hexdigest().encode() for one in (old, new))
    return changed_member(sealed(), member, old, new)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (b"{}", "not an intact"),
        (changed("pca/mean.npy"), "not an intact"),
        (changed("release.json"), "not an intact"),
        (unsigned_release(simulation().document, simulation().result), "has no signature"),
        ("nowhere.zip", "nowhere.zip: No such file"),
        (".", "Is a directory"),
    ],
)
def test_a_release_that_is_not_intact_is_refused(source: Any, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        load_release(source)


def test_transform_is_the_projection_of_what_the_study_compared() -> None:
    one, x = released(), rows(50, seed=3)
    fitted = one.to_sklearn()
    expected = ((x - one.mean) / one.scale) @ one.components.T
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_allclose(fitted.transform(x), expected, atol=1e-12)
    np.testing.assert_allclose(fitted.inverse_transform(expected) @ np.eye(4), one.mean + one.scale * (
        expected @ one.components
    ))  # fmt: skip


def tables() -> dict[str, Any]:
    """The records in another order of columns, with one that nobody asked for."""
    x, order = rows(40, seed=4), [2, 0, 3, 1]
    stored = {NAMES[i]: x[:, i] for i in order} | {"patient": [f"p{i}" for i in range(len(x))]}
    return {"pandas": pd.DataFrame(stored), "polars": pl.DataFrame(stored), "arrow": pa.table(stored)}


@pytest.mark.parametrize("kind", tables())
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_table_counts_by_name_and_an_array_by_position(kind: str) -> None:
    fitted, table = released().to_sklearn(), tables()[kind]
    np.testing.assert_array_equal(fitted.transform(table), fitted.transform(rows(40, seed=4)))
    np.testing.assert_allclose(fitted.score_samples(table), fitted.score_samples(rows(40, seed=4)))
    lacking = table.drop_columns(["age"]) if kind == "arrow" else table[[n for n in NAMES if n != "age"]]
    with pytest.raises(ValueError, match="the table has no column 'age'"):
        fitted.transform(lacking)


def test_a_column_that_is_there_twice_is_refused() -> None:
    table = tables()["pandas"]
    with pytest.raises(ValueError, match="more than one column 'age'"):
        released().to_sklearn().transform(pd.concat([table, table[["age"]]], axis=1))


@pytest.mark.filterwarnings("ignore::UserWarning")  # forty records are few
def test_a_fitted_estimator_can_be_pickled_cloned_and_used_in_a_pipeline() -> None:
    fitted, table = released().to_sklearn(), tables()["pandas"]
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(table), fitted.transform(table))
    assert again.release_ == fitted.release_
    piped = make_pipeline(fitted, FunctionTransformer(np.negative))
    np.testing.assert_array_equal(piped.transform(table), -fitted.transform(table))
    anew = clone(fitted).set_params(random_state=0)
    assert not hasattr(anew, "components_")
    refitted = anew.fit(tables()["pandas"][list(NAMES)[::-1]])
    assert refitted.release_["plan"]["study"]["privacy"] == fitted.release_["plan"]["study"]["privacy"]


def test_whitened_components_have_a_variance_of_one_by_the_release() -> None:
    plain, white = released().to_sklearn(), released().to_sklearn(whiten=True)
    table = tables()["pandas"]
    lengths = np.sqrt(plain.explained_variance_)
    np.testing.assert_allclose(white.transform(table) * lengths, plain.transform(table))
    np.testing.assert_allclose(
        white.inverse_transform(white.transform(table)), plain.inverse_transform(plain.transform(table))
    )


def test_a_share_takes_the_fewest_components_that_hold_more() -> None:
    one = released()
    combined = np.cumsum(one.explained_variance_ratio)
    for share in (0.01, float(combined[0]), float(combined[1]) - 1e-9, float(combined[2]) - 1e-9):
        remaining = one.to_sklearn(share)
        k = remaining.n_components_
        assert combined[k - 1] > share
        assert k == 1 or combined[k - 2] <= share
        np.testing.assert_array_equal(remaining.components_, one.components[:k])
    with pytest.raises(ValueError, match="the 1 released components hold"):
        load_release(sealed(simulation(components=1))).to_sklearn(0.999)
    assert one.to_sklearn(2).components_.shape == (2, 4)
    with pytest.raises(ValueError, match="between 1 and the released components=3"):
        one.to_sklearn(4)


@pytest.mark.parametrize("components", [1, 3, 4])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_the_likelihood_is_a_normal_density_in_the_columns_own_units(components: int) -> None:
    fitted, x = load_release(sealed(simulation(components=components))).to_sklearn(), rows(20, seed=6)
    covariance, precision = fitted.get_covariance(), fitted.get_precision()
    np.testing.assert_allclose(covariance @ precision, np.eye(4), atol=1e-8)
    off = x - fitted.mean_
    _, size = np.linalg.slogdet(2 * np.pi * covariance)
    expected = -0.5 * (np.einsum("ni,ij,nj->n", off, np.linalg.inv(covariance), off) + size)
    np.testing.assert_allclose(fitted.score_samples(x), expected)


def test_an_empty_release_makes_no_estimator() -> None:
    declined = replace(simulation().result, components=np.empty((0, 4)), declined="too few records")
    with pytest.raises(ValueError, match="released no components: too few records"):
        PrivatePCA.from_release(replace(simulation(), result=declined))


def test_a_notebook_shows_it_twice_without_a_clash_and_escaped() -> None:
    for shown in (released()._repr_html_(), simulation()._repr_html_()):
        assert " id=" not in shown
        assert "<svg" not in shown
        assert simulation().document["guarantee"]["text"] in shown
        assert f"{100 * released().explained_variance_ratio[0]:.1f} %" in shown
