"""Files of priors: what they give, and each wrong one refused with its line, before anything is planned."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sklearn.covariance import ledoit_wolf

from eigenveil.errors import Code
from eigenveil.numerics.encoding import FloatArray
from eigenveil.priors import LEAST_ROWS, MOST_BYTES, prior_from_file, prior_from_rows
from eigenveil.reporting.document import signed_release, unsigned_release
from eigenveil.simulation import Simulation, simulate
from eigenveil.study.prior import Prior
from eigenveil.study.scaling import Scaling
from eigenveil.study.study import Column, Federation, Study
from tests.support import refused

NAMES, UPPER = ("a", "b", "c"), (1.0, 2.0, 10.0)
COLUMNS = tuple(Column(name=n, unit="mm", lower=-u, upper=u) for n, u in zip(NAMES, UPPER, strict=True))
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
ROWS = np.clip(np.random.default_rng(3).normal(size=(50, 3)) @ np.diag([0.1, 0.5, 1.0]), -1, 1)


def study(scaling: Scaling = Scaling.BOUNDS, **changes: Any) -> Study:
    values: dict[str, Any] = {
        "name": "later", "columns": COLUMNS, "epsilon": 4.0, "delta": 1e-6, "components": 1,
        "federation": Federation(sites=("north", "west"), minimum_cohort=1), "scaling": scaling,
    }  # fmt: skip
    return Study(**(values | changes))


def matrix(prior: Prior, d: int = 3) -> FloatArray:
    """The matrix that a plan carries, with a total of 1."""
    axes, variances = prior.directions(d), np.array(prior.variances)
    found = (axes.T * (variances - prior.level)) @ axes + prior.level * np.eye(d)
    return np.asarray(found / np.trace(found))


def csv(rows: FloatArray, names: tuple[str, ...] = NAMES) -> bytes:
    lines = [",".join(names), *(",".join(f"{value:.17g}" for value in row) for row in rows.tolist())]
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize("scaling", Scaling)
def test_rows_give_their_covariance_in_the_units_of_the_study(scaling: Scaling) -> None:
    units = {
        Scaling.BOUNDS: np.array(UPPER), Scaling.NONE: np.ones(3), Scaling.STANDARD: ROWS.std(axis=0),
    }[scaling]  # fmt: skip
    expected = ledoit_wolf(ROWS / units)[0]
    found = prior_from_rows(ROWS, study(scaling))
    assert np.abs(matrix(found) - expected / np.trace(expected)).max() < 1e-3
    shuffled = np.column_stack([np.zeros(50), ROWS[:, 2], ROWS[:, 0], ROWS[:, 1]])
    by_name = prior_from_file(csv(shuffled, ("other", "c", "a", "b")), study(scaling))
    assert by_name.axes == found.axes
    share = replace(study(scaling), columns=(replace(COLUMNS[0], name="share"), *COLUMNS[1:]))
    assert prior_from_file(csv(ROWS, ("share", "b", "c")), share).axes == found.axes
    assert by_name.variances == pytest.approx(found.variances)


def test_the_digest_is_that_of_the_file() -> None:
    data = csv(ROWS)
    assert prior_from_file(data, study()).sha256 == hashlib.sha256(data).hexdigest()


LOADINGS = "share,scaling,c,b,a\n0.6,bounds,1,0,0\n0.3,bounds,0,0.8,-0.6\n"


def test_loadings_give_their_axes_and_shares() -> None:
    found = matrix(prior_from_file(LOADINGS.encode(), study()))
    second = np.array([-0.6, 0.8, 0.0])
    expected = 0.6 * np.diag([0, 0, 1.0]) + 0.3 * np.outer(second, second)
    expected += 0.1 * np.outer([0.8, 0.6, 0], [0.8, 0.6, 0])
    assert np.abs(found - expected).max() < 1e-3


@pytest.mark.parametrize(("old", "new", "words"), [
    ("1,0,0", "1,0,x", "line 2: a = 'x'"), ("0,0.8", "nan,0.8", "line 3: c = 'nan'"),
    ("0.8", "0.9", "line 3: the loadings are not orthonormal"), ("1,0,0", "0.8,0.6,0", "line 3"),
    ("0.3,bounds", "0.3,standard", "line 3: scaling is 'standard'"), ("0.3", "0.7", "line 3: share = 0.7"),
    ("0.6,b", "-1,b", "line 2: share"), ("0.6,b", "60,b", "and at most 1"),
    ("0.3,bounds", "0.5,bounds", "add up to 1.1"),
    (",a\n", ",d\n", "'a'"),
    ("scaling", "scale", "line 1 lacks 'scaling'"), ("c,b,a", "c,b,b", "line 1 names a column twice"),
    ("1,0,0", "1,0", "line 2 has 4 cells"), ("0.6,bounds,1,0,0\n0.3", "0.2", "is below"),
    ('1,0,0', '"1,0,0', "is not CSV"),
])  # fmt: skip
def test_wrong_loadings_are_refused_with_their_line(old: str, new: str, words: str) -> None:
    with refused(Code.BAD_STUDY, words):
        prior_from_file(LOADINGS.replace(old, new, 1).encode(), study())


@pytest.mark.parametrize(("place", "value", "words"), [
    ((2, 1), np.nan, "line 4: b = 'nan'"), ((0, 2), 11.0, "line 2: c = 11 is outside"),
    ((9, 0), -np.inf, "line 11: a"),
])  # fmt: skip
def test_wrong_rows_are_refused_with_their_line(place: tuple[int, int], value: float, words: str) -> None:
    rows = ROWS.copy()
    rows[place] = value
    with refused(Code.BAD_STUDY, words):
        prior_from_file(csv(rows), study())
    noted = np.column_stack([rows, np.zeros(len(rows))])
    longer = csv(noted, (*NAMES, "PKU")).replace(b",0\n", b',"two\nlines"\n', 1)  # in line 2
    shifted = words.replace("4:", "5:").replace("11:", "12:")
    with refused(Code.BAD_STUDY, shifted):
        prior_from_file(longer, study())
    with refused(Code.BAD_STUDY, f"row {place[0] + 1}: {NAMES[place[1]]}"):
        prior_from_rows(rows, study())


def test_files_that_are_no_prior_are_refused() -> None:
    for data, words in (
        (b" " * (MOST_BYTES + 1), "more than 16 MiB"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"format": 3}', "without its signature"),
        (b"", "lacks 3"),
        (csv(ROWS[: LEAST_ROWS - 1]), "at least"),
        (csv(ROWS[:, :2], ("a", "b")), "'c'"),
        (csv(ROWS * 0), "no axes"),
    ):
        with refused(Code.BAD_STUDY, words):
            prior_from_file(data, study())
    with refused(Code.BAD_STUDY, "without a correlation: b"):
        prior_from_rows(ROWS * [1, 0, 1], study(Scaling.STANDARD))
    with refused(Code.BAD_STUDY, "2 columns"):
        prior_from_rows(ROWS[:, :2], study())


def earlier(**changes: Any) -> Simulation:
    rows = np.random.default_rng(0).normal(size=(4000, 3)) @ np.diag([0.1, 0.5, 1.0])
    sites = Federation(sites=("east", "north"), minimum_cohort=1)
    return simulate(
        study(federation=sites, epsilon=8.0, **changes), {"east": rows, "north": rows[:500]}, seed=1
    )


def signed(run: Simulation) -> bytes:
    public = KEY.public_key().public_bytes_raw()
    return signed_release(run.document, run.result, sign=KEY.sign, public_key=public)


def test_an_earlier_release_gives_its_components_in_other_bounds() -> None:
    run = earlier()
    wider = tuple(replace(one, lower=8 * one.lower, upper=8 * one.upper) for one in reversed(COLUMNS[:2]))
    found = prior_from_file(signed(run), study(columns=(COLUMNS[2], *wider)))
    assert (found.signer, found.shared_sites) == (KEY.public_key().public_bytes_raw().hex(), ("north",))
    first, variance = run.result.components[0], float(run.result.explained_variance[0])
    level = (run.result.total_variance - variance) / 2
    released = (variance - level) * np.outer(first, first) + level * np.eye(3)
    expected = (released / np.outer([8, 8, 1], [8, 8, 1]))[::-1, ::-1]
    assert np.abs(matrix(found) - expected / np.trace(expected)).max() < 1e-3


@pytest.mark.parametrize(("changes", "words"), [
    ({"scaling": Scaling.STANDARD}, 'scaling = "bounds"'), ({"columns": COLUMNS[:2]}, "differ in columns: c"),
    ({"columns": (*COLUMNS[:2], replace(COLUMNS[2], unit="cm"))}, "'c' is in 'mm' in the release"),
])  # fmt: skip
def test_a_release_of_another_study_is_refused(changes: dict[str, Any], words: str) -> None:
    with refused(Code.BAD_STUDY, words):
        prior_from_file(signed(earlier()), study(**changes))


def test_a_release_needs_an_intact_signature() -> None:
    run = earlier()
    with refused(Code.BAD_RELEASE, "no signature"):
        prior_from_file(unsigned_release(run.document, run.result), study())
    data = bytearray(signed(run))
    data[len(data) // 2] ^= 1
    with refused(Code.BAD_RELEASE):
        prior_from_file(bytes(data), study())
