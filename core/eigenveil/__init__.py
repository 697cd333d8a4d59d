"""Federated PCA with differential privacy: the Python interface of eigenveil, and its pure core.

The names in `__all__` are public, with the fields and methods in their docstrings. For custom algorithms, the
names in `eigenveil.algorithms.__all__` are public too. Everything else may change with any version.

    from eigenveil import Column, Federation, Study, explain, predict, make_plan, simulate

- Make a `Study` in Python, or read one from a file: `parse_study`.
- Predict its error, plan it and describe it: `predict`, `make_plan`, `explain`.
- Run it on your own records: `simulate`, or the scikit-learn estimators `PrivatePCA` and `PrivateCovariance`.
- Run it at the sites of a federation in which you are enrolled: `connect`.
- Read a release and check its signature: `load_release`, `verify_release`.
- Use a release: `plot`, `ReleasedResult.to_sklearn`, and `Moments` for derived results."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from eigenveil._version import __version__ as __version__

if TYPE_CHECKING:
    from eigenveil import plot
    from eigenveil.accounting.zcdp import Neighbours
    from eigenveil.derived.moments import Moments
    from eigenveil.errors import EigenveilError, InternalError, PeerError, RequestError
    from eigenveil.estimators.covariance import PrivateCovariance
    from eigenveil.estimators.pca import PrivatePCA
    from eigenveil.planning.choose import make_plan
    from eigenveil.planning.predict import predict
    from eigenveil.released import ReleasedResult, load_release
    from eigenveil.reporting.explain import explain
    from eigenveil.reporting.verify import verify_release
    from eigenveil.simulation import Simulation, simulate
    from eigenveil.study.algorithm import Algorithm
    from eigenveil.study.radius import PublicNorm
    from eigenveil.study.study import Column, Federation, Study
    from eigenveil.study.toml import parse_study
    from eigenveil_client.analyst.python.connect import connect

# A study, its prediction and its result.
__all__ = ["Algorithm", "Column", "Federation", "Neighbours", "PublicNorm", "Study", "parse_study"]
__all__ += ["PrivateCovariance", "PrivatePCA", "Simulation", "explain", "make_plan", "predict", "simulate"]
# A connection to a federation.
__all__ += ["connect"]
# Releases, results derived from them, and errors.
__all__ += ["Moments", "ReleasedResult", "load_release", "plot", "verify_release"]
__all__ += ["EigenveilError", "InternalError", "PeerError", "RequestError"]

# Resolved on first use, so that a site daemon never imports scikit-learn.
_HOMES = {
    "accounting.zcdp": ("Neighbours",),
    "derived.moments": ("Moments",),
    "errors": ("EigenveilError", "InternalError", "PeerError", "RequestError"),
    "estimators.covariance": ("PrivateCovariance",),
    "estimators.pca": ("PrivatePCA",),
    "planning.predict": ("predict",),
    "planning.choose": ("make_plan",),
    "reporting.explain": ("explain",),
    "released": ("ReleasedResult", "load_release"),
    "reporting.verify": ("verify_release",),
    "simulation": ("Simulation", "simulate"),
    "study.algorithm": ("Algorithm",),
    "study.radius": ("PublicNorm",),
    "study.study": ("Column", "Federation", "Study"),
    "study.toml": ("parse_study",),
}
_HOME_OF = {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names}
# The only name of another package; core does not import it until it is used.
_HOME_OF["connect"] = "eigenveil_client.analyst.python.connect"


def __getattr__(name: str) -> object:
    if name == "plot":  # the only module
        return import_module(f"{__name__}.plot")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
