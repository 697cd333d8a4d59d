"""The public names of the package: a closed list, each with an example that runs."""

from __future__ import annotations

import doctest
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import eigenveil
from eigenveil import Algorithm, simulate
from eigenveil.reporting.document import signed_release
from tests.support import a_study

README = Path(__file__).parents[2] / "README.md"
PROMISED = (
    "PrivatePCA PrivateCovariance Study PublicNorm Column Federation Neighbours Algorithm parse_study "
    "make_plan explain predict simulate Simulation Moments load_release verify_release "
    "ReleasedResult plot connect "
    "EigenveilError RequestError PeerError InternalError"
)


# What is described and shown at work: `plot` is a module of such.
PUBLIC = {name: getattr(eigenveil, name) for name in eigenveil.__all__ if name != "plot"}
PUBLIC |= {f"plot.{name}": getattr(eigenveil.plot, name) for name in eigenveil.plot.__all__}


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in which an analyst has fetched a release."""
    study, key = (
        a_study(sites=("north",), components=2, algorithm=Algorithm.GAUSS_COV),
        Ed25519PrivateKey.from_private_bytes(bytes(31) + b"\1"),
    )
    public = key.public_key().public_bytes_raw()
    run = simulate(study, {"north": np.full((50, 3), 50.0)}, seed=1)
    monkeypatch.chdir(tmp_path)
    release = signed_release(run.document, run.result, sign=key.sign, public_key=public)
    Path("release.zip").write_bytes(release)


def test_the_package_offers_exactly_the_public_names() -> None:
    assert sorted(PROMISED.split()) == sorted(eigenveil.__all__)
    assert set(dir(eigenveil)) == {*eigenveil.__all__, "__version__"}
    for value in PUBLIC.values():
        assert value.__module__.startswith(("eigenveil.", "eigenveil_client.analyst."))
    with pytest.raises(AttributeError, match="has no attribute 'Plan'"):
        eigenveil.Plan  # noqa: B018


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_that_runs(name: str) -> None:
    (shown,) = doctest.DocTestFinder(recurse=False).find(PUBLIC[name], name)
    assert shown.examples
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(shown).failed == 0


@pytest.mark.usefixtures("published")
def test_the_readme_example_runs() -> None:
    """But for what needs a federation, which the tutorial's test runs."""
    federated, alone = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert "eigenveil.connect(" in federated
    known: dict[str, object] = {"X": np.random.default_rng(2).uniform(2, 8, size=(2000, 3))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about records that are nothing but noise
        exec(alone, known)
    assert known["pca"].components_.shape == (2, 3)  # type: ignore[attr-defined]
