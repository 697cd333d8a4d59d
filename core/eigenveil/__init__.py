"""Federated PCA with differential privacy: the pure core.

from eigenveil import PrivatePCA, Study, parse_study, simulate
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from eigenveil._version import __version__ as __version__

if TYPE_CHECKING:
    from eigenveil.estimators.covariance import PrivateCovariance
    from eigenveil.estimators.pca import PrivatePCA
    from eigenveil.simulation import simulate
    from eigenveil.study.study import Study
    from eigenveil.study.toml import parse_study

__all__ = ["PrivateCovariance", "PrivatePCA", "Study", "parse_study", "simulate"]

# Resolved on first use, so that a site daemon never pays for importing scikit-learn.
_HOMES = {
    "PrivateCovariance": "eigenveil.estimators.covariance",
    "PrivatePCA": "eigenveil.estimators.pca",
    "Study": "eigenveil.study.study",
    "parse_study": "eigenveil.study.toml",
    "simulate": "eigenveil.simulation",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
