"""How many components: a number, or a share of the released variance that they hold together."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from eigenveil.errors import RequestError
from eigenveil.reporting.result import Result
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Study

# They release one noised matrix, and with it every variance; what others spend is on the first components.
WHOLE = (Algorithm.GAUSS_COV, Algorithm.ANALYZE_GAUSS)


def fitted_for(wanted: Any, study: Study) -> Study:
    """The study that releases what `wanted` is chosen from: so many components, or all that there are.

    Raises:
        ValueError: it is neither a number of components nor a share, or the study's algorithm does not
            release every variance; nothing was spent.
    """
    if not _is_share(wanted):
        return _with(study, components=_number(wanted, study.dimension))
    algorithm = Algorithm.GAUSS_COV if study.algorithm is Algorithm.AUTO else study.algorithm
    if algorithm not in WHOLE:
        raise ValueError(
            f"n_components={wanted!r} is chosen from all variances, which {algorithm.value} does not "
            f"release: name one of {', '.join(one.value for one in WHOLE)}, or a number of components"
        )
    return _with(study.running(algorithm), components=study.dimension)


def chosen(wanted: Any, result: Result) -> int:
    """How many of the released components are kept: the fewest that hold more than the share wanted.

    Source: the release alone [P7]. Where noise hides it that all of them hold as much, all are kept.

    Raises:
        ValueError: more are wanted than were released.
    """
    k = len(result.components)
    if not _is_share(wanted):
        return k if result.declined is not None else _number(wanted, k, "the released components")
    together = np.cumsum(result.explained_variance_ratio)
    enough = np.flatnonzero(together > wanted)
    if not enough.size and k < len(result.columns):
        held = float(together[-1]) if k else 0.0
        raise ValueError(
            f"n_components={wanted!r}: the {k} released components hold {held:.1%} of the variance; ask for "
            "less than that, or for a study with more components"
        )
    return int(enough[0]) + 1 if enough.size else k


def warn_of_noise(wanted: Any, k: int, result: Result) -> None:
    """Say so where a share was reached with directions that noise alone could show."""
    if not _is_share(wanted) or result.noise_edge is None:
        return
    made = int((result.explained_variance[:k] < result.noise_edge).sum())
    if made:
        warnings.warn(
            f"{made} of the {k} components that hold {wanted:.0%} of the released variance vary no more than "
            "the privacy noise alone would: they may be noise; ask for fewer components or a larger epsilon",
            stacklevel=3,
        )


def _is_share(wanted: Any) -> bool:
    return isinstance(wanted, float | np.floating) and 0 < float(wanted) < 1


def _number(wanted: Any, most: int, of: str = "n_features") -> int:
    if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or not 1 <= wanted <= most:
        raise ValueError(
            f"n_components={wanted!r} must be an integer between 1 and {of}={most}, or a share of the "
            "variance between 0 and 1"
        )
    return int(wanted)


def _with(study: Study, **changes: Any) -> Study:
    try:
        return replace(study, **changes)
    except RequestError as problem:
        raise ValueError(str(problem)) from problem
