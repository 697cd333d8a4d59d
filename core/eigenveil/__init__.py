"""Federated PCA with differential privacy: the pure core, and the face of eigenveil to Python.

Public are the names below, in `__all__`, with the fields and methods that their docstrings describe; and,
for whoever writes an algorithm of their own, the names in `eigenveil.algorithms.__all__`. Everything else is
private by convention and may change with any version.

    from eigenveil import Column, Federation, Study, explain, predict, make_plan, simulate

A `Study` is built in Python or read from a file (`parse_study`), predicted (`predict`), made concrete
(`make_plan`), put into words (`explain`) and run on records that you hold (`simulate`, or `PrivatePCA` and
`PrivateCovariance` in scikit-learn's manner), or by the sites of the federation that you are enrolled with
(`connect`). What a federation released is read and held against its signature by `load_release` and
`verify_release`, drawn by `plot`, put to use by its `to_sklearn`, and asked for all else that it answers by
`Moments`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from eigenveil._version import __version__ as __version__

if TYPE_CHECKING:
    from eigenveil import plot
    from eigenveil.accounting.neighbours import Neighbours
    from eigenveil.derived.moments import Moments
    from eigenveil.errors import EigenveilError, InternalError, PeerError, RequestError
    from eigenveil.estimators.covariance import PrivateCovariance
    from eigenveil.estimators.pca import PrivatePCA
    from eigenveil.planning.predict import predict
    from eigenveil.planning.resolve import make_plan
    from eigenveil.released import ReleasedResult, load_release
    from eigenveil.reporting.explain import explain
    from eigenveil.reporting.verify import verify_release
    from eigenveil.simulation import Simulation, simulate
    from eigenveil.study.algorithm import Algorithm
    from eigenveil.study.radius import PublicNorm
    from eigenveil.study.study import Column, Federation, Study
    from eigenveil.study.toml import parse_study
    from eigenveil_client.analyst.python.connect import connect

# A study, what it would give, and what it gives.
__all__ = ["Algorithm", "Column", "Federation", "Neighbours", "PublicNorm", "Study", "parse_study"]
__all__ += ["PrivateCovariance", "PrivatePCA", "Simulation", "explain", "make_plan", "predict", "simulate"]
# A federation, from Python.
__all__ += ["connect"]
# What was released, what else that answers, and what goes wrong.
__all__ += ["Moments", "ReleasedResult", "load_release", "plot", "verify_release"]
__all__ += ["EigenveilError", "InternalError", "PeerError", "RequestError"]

# Resolved on first use, so that a site daemon never pays for importing scikit-learn.
_HOMES = {
    "accounting.neighbours": ("Neighbours",),
    "derived.moments": ("Moments",),
    "errors": ("EigenveilError", "InternalError", "PeerError", "RequestError"),
    "estimators.covariance": ("PrivateCovariance",),
    "estimators.pca": ("PrivatePCA",),
    "planning.predict": ("predict",),
    "planning.resolve": ("make_plan",),
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
# The one name of another package: core imports nothing of it, and whoever asks for it has it all installed.
_HOME_OF["connect"] = "eigenveil_client.analyst.python.connect"


def __getattr__(name: str) -> object:
    if name == "plot":  # a module, and the only one
        return import_module(f"{__name__}.plot")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
