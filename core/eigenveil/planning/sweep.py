"""One study at several epsilons: what each is predicted to give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from eigenveil.accounting.zcdp import MAX_EPSILON
from eigenveil.errors import Code, RequestError
from eigenveil.planning.error_models.rotation import PredictedError
from eigenveil.planning.error_models.spectrum import AssumedSpectrum
from eigenveil.planning.predict import predict
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Study

AROUND, POINTS = 8.0, 7  # so many times less and more than the study's own epsilon, its own in the middle


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What an algorithm is predicted to give at an epsilon."""

    epsilon: float
    algorithm: Algorithm
    error: PredictedError
    rounds: int


def around(epsilon: float) -> tuple[float, ...]:
    """Epsilons below and above this one, evenly apart on a logarithmic scale."""
    steps = [AROUND ** (2 * i / (POINTS - 1) - 1) for i in range(POINTS)]
    return tuple(epsilon * step for step in steps if epsilon * step <= MAX_EPSILON)


def sweep(
    study: Study,
    epsilons: Iterable[float],
    algorithm: Algorithm | None = None,
    spectrum: AssumedSpectrum | Sequence[float] | None = None,
) -> tuple[Foreseen, ...]:
    """The predictions at these epsilons, the least first; those too small for the algorithm are left out.

    Without `algorithm` it is the study's, or what `auto` means at each epsilon. Nothing is asked or spent.

    Raises:
        RequestError: code `bad-study`: an epsilon that no study may have, or no law of the error is known at
            any of them.
    """
    said = [
        (epsilon, predict(replace(study, epsilon=epsilon), algorithm, spectrum))
        for epsilon in sorted(epsilons)
    ]
    found = tuple(
        Foreseen(epsilon=epsilon, algorithm=one.algorithm, error=one.error, rounds=one.rounds)
        for epsilon, one in said
        if one.error is not None and one.rounds is not None
    )
    if not found:
        why = next((one.refused for _, one in said if one.refused), "no law of its error is known")
        raise RequestError(Code.BAD_STUDY, f"no error can be predicted at these epsilons: {why}")
    return found
