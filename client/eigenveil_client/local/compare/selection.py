"""Which algorithms a comparison runs, as studies of their own, and what all of them cost together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eigenveil.accounting.budget import epsilon_of
from eigenveil.accounting.digits import shown_up
from eigenveil.accounting.zcdp import ATTO, NOTHING, Cost
from eigenveil.algorithms import ALGORITHMS
from eigenveil.errors import Code, RequestError
from eigenveil.planning.error_models.spectrum import AssumedSpectrum, default_guess
from eigenveil.planning.predict import Prediction, predict
from eigenveil.study.algorithm import Algorithm, OwnAlgorithm
from eigenveil.study.price import affordable
from eigenveil.study.study import Study

LONGEST = 63  # of a study's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What applies, what does not and why, whether the reference without privacy is compared as well, and an
    algorithm of the user's own if there is one."""

    able: tuple[Prediction, ...]
    refused: tuple[Prediction, ...]
    oja: bool
    own: OwnAlgorithm | None = None


def wanted(
    study: Study, names: str | None, *, private: bool = False, own: OwnAlgorithm | None = None
) -> Wanted:
    """The algorithms named, separated by commas, or all; those that do not apply to the study apart.

    `private`: only what may run on records that one must not look at.

    Raises:
        RequestError: an unknown name, or nothing is left to run.
    """
    references = () if private else (Algorithm.OJA,)
    known = {algorithm.value: algorithm for algorithm in (*ALGORITHMS, *references)}
    asked = list(known) if names is None else [name.strip() for name in names.split(",")]
    for name in asked:
        if name not in known:
            raise RequestError(
                Code.BAD_ARGUMENT, f"--algorithms: {name!r} is unknown; there are: {', '.join(known)}"
            )
    guess = default_guess(study.dimension, study.components)
    several = [known[name] for name in dict.fromkeys(asked) if known[name] is not Algorithm.OJA]
    predictions = [_predicted(study, algorithm, guess, private) for algorithm in several]
    able = tuple(one for one in predictions if one.refused is None)
    if not able and own is None and Algorithm.OJA.value not in asked:
        why = "; ".join(f"{one.algorithm.value}: {one.refused}" for one in predictions)
        raise RequestError(Code.BAD_STUDY, f"none of these algorithms can run this study: {why}")
    return Wanted(
        able=able,
        refused=tuple(one for one in predictions if one.refused is not None),
        oja=Algorithm.OJA.value in asked,
        own=own,
    )


def _predicted(study: Study, algorithm: Algorithm, guess: AssumedSpectrum, private: bool) -> Prediction:
    if private and algorithm.properties.single_records:
        return Prediction(algorithm=algorithm, refused=f"{algorithm.value} runs in simulations only")
    return predict(study, algorithm, guess)


def total_cost(study: Study, algorithms: Sequence[Algorithm]) -> Cost:
    """What running all of them may spend of every budget."""
    once = sum((affordable(study, algorithm) for algorithm in algorithms), NOTHING)
    return sum([once] * study.attempts, NOTHING)


def cost_words(study: Study, algorithms: Sequence[Algorithm]) -> str:
    """That sum as a sentence."""
    cost = total_cost(study, algorithms)
    if study.delta > 0:
        delta = study.delta + cost.atto_delta / ATTO
        alike = all(algorithm.properties.gaussian for algorithm in algorithms)
        epsilon = epsilon_of(cost.micro_rho, study.delta, gaussian_only=alike)
        meaning = f"together ({shown_up(epsilon)}, {shown_up(delta, 2)})-differential privacy"
    else:
        meaning = f"together an epsilon of {shown_up(study.epsilon * len(algorithms))}"
    number = "1 study" if len(algorithms) == 1 else f"{len(algorithms)} studies"
    return f"{number} out of every budget, {meaning} at most"


def one_study(study: Study, algorithm: Algorithm) -> Study:
    """The study with that algorithm, under a name of its own."""
    ending = f"-{algorithm.value}"
    return replace(study.running(algorithm), name=study.name[: LONGEST - len(ending)] + ending)
