"""Which algorithm to name in a study, why, and what to mind: sentences for the analyst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eigenveil.accounting.digits import shown, shown_up
from eigenveil.planning.choose import CANDIDATES, HOPELESS, USABLE, better, enough, fewer, least, remedies
from eigenveil.planning.error_models.spectrum import AssumedSpectrum
from eigenveil.planning.predict import Prediction, predict
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.price import most_epsilon
from eigenveil.study.study import Study

FAR_BETTER = 0.5  # what an algorithm that `auto` never chooses must promise, relative to its choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The algorithm to name in the study, why, and what to mind. None: no algorithm can run it."""

    algorithm: Algorithm | None
    reason: str
    warnings: tuple[str, ...]


def recommend(study: Study, guess: AssumedSpectrum, predictions: Sequence[Prediction]) -> Recommendation:
    """The better of what `auto` chooses from on the assumed spectrum; another only if it is far better."""
    able = {one.algorithm: one for one in predictions if one.refused is None}
    able.pop(Algorithm.ZERO, None)  # it asks nothing: whoever wants an answer wants another
    chosen = next((able[name] for name in (better(study, guess), *CANDIDATES) if name in able), None)
    most = FAR_BETTER * (1.0 if chosen is None or chosen.error is None else chosen.error.median)
    far = [one for one in able.values() if one.error is not None and one.error.median < most]
    best = min(far, key=lambda one: one.raw, default=chosen)
    if best is None:
        return Recommendation(algorithm=None, reason=_too_little(study, guess), warnings=study.warnings())
    return Recommendation(
        algorithm=best.algorithm,
        reason=_reason(study, guess, best, able),
        warnings=(*study.warnings(), *_noise(study, guess, best)),
    )


def _too_little(study: Study, guess: AssumedSpectrum) -> str:
    """Why nothing can be recommended, and the least epsilon with which something could."""

    def refused(times: float) -> float:
        louder = replace(study, epsilon=study.epsilon * times)
        return float(all(predict(louder, algorithm, guess).refused for algorithm in CANDIDATES))

    times = least(refused, most_epsilon(study) / study.epsilon)
    if times is None:
        return "no algorithm can run this study; see why beside each"
    return (
        f"none: epsilon = {shown(study.epsilon)} is too small for every algorithm that would learn "
        f"something; raise it to {shown_up(study.epsilon * times * 1.05, 2)} or more"
    )


def _reason(
    study: Study, guess: AssumedSpectrum, best: Prediction, able: Mapping[Algorithm, Prediction]
) -> str:
    said = f"{best.algorithm.value}: its predicted error is {_sine(best)}"
    if best.algorithm not in CANDIDATES:
        trust = " and needs exact sums at the coordinator" if best.trusted else ""
        if not able.keys() & set(CANDIDATES):
            return f"{said}, and nothing that `auto` chooses from can run this study{trust}"
        return f"{said}, less than half of what `auto` would choose{trust}"
    others = [able[name] for name in CANDIDATES if name in able and name is not best.algorithm]
    if not others:
        return f"{said}, and of what `auto` chooses from it alone can run this study"
    against = f"{said}, that of " + ", ".join(f"{one.algorithm.value} {_sine(one)}" for one in others)
    if best.raw > min(one.raw for one in others):
        than = "no spectrum is stated, and" if not guess.known else "the others promise hardly less, and"
        against = f"{against}; {than} it is seldom far from the best on any"
    return f"{against}; {_why(best.algorithm, guess)}"


def _why(algorithm: Algorithm, guess: AssumedSpectrum) -> str:
    """What the candidate has over the others."""
    flat = f"the total variance is about {guess.flatness:.1f} times the first component's"
    match algorithm:
        case Algorithm.REFINED_COV:
            return "once a matrix has said where to look, it asks only about what turns the components"
        case Algorithm.REFINED_PCA:
            return "once gradients have said where to look, it asks only about what turns the components"
        case Algorithm.DP_PCA:
            return f"{flat}, and noise on gradients then costs less than noise on a whole matrix"
        case _:
            return f"{flat}, so that one noised matrix costs less than many questions"


def _sine(one: Prediction) -> str:
    return "unknown" if one.error is None else f"{one.error.median:.2g}"


def _noise(study: Study, guess: AssumedSpectrum, best: Prediction) -> tuple[str, ...]:
    if best.error is None or best.raw <= USABLE:
        return ()
    what = "would be mostly noise" if best.raw >= HOPELESS else "would be rough"
    named = study.running(best.algorithm)
    few = fewer(named, guess)
    words = [word for word in (enough(*remedies(named, guess)), few and f"components = {few}") if word]
    remedy = " or ".join(words) or "no number of records, no epsilon and no fewer components"
    return (f"the answer {what} on this spectrum; {remedy} would do",)
