"""Recommendation of an algorithm, with its reason and warnings, as sentences for the analyst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eigenveil.accounting.formatting import shown, shown_up
from eigenveil.planning.choose import (
    CANDIDATES,
    MOSTLY_NOISE,
    USABLE,
    best_candidate,
    least_factor,
    remedies_text,
    usable_components,
)
from eigenveil.planning.error_models.assumed_records import AssumedSpectrum
from eigenveil.planning.predict import Prediction, predict
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.composition import largest_epsilon
from eigenveil.study.scaling import NO_SPREADS, Spreads
from eigenveil.study.study import Study

FAR_BETTER = 0.5  # largest relative error at which an algorithm outside of `auto` is recommended


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Recommended algorithm, reason and warnings. None: no algorithm can run the study."""

    algorithm: Algorithm | None
    reason: str
    warnings: tuple[str, ...]


def recommend(
    study: Study,
    spectrum: AssumedSpectrum,
    predictions: Sequence[Prediction],
    spreads: Spreads = NO_SPREADS,
) -> Recommendation:
    """Return the best candidate of `auto` on the assumed spectrum; another only if it is far better.
    `spreads` are plausible spreads of columns, for a warning."""
    runnable = {one.algorithm: one for one in predictions if one.refused is None}
    runnable.pop(Algorithm.ZERO, None)  # it reads no records, so its answer says nothing about them
    chosen = next(
        (runnable[name] for name in (best_candidate(study, spectrum), *CANDIDATES) if name in runnable), None
    )
    most = FAR_BETTER * (1.0 if chosen is None or chosen.error is None else chosen.error.median)
    far = [one for one in runnable.values() if one.error is not None and one.error.median < most]
    best = min(far, key=lambda one: one.raw, default=chosen)
    if best is None:
        return Recommendation(
            algorithm=None, reason=_too_little(study, spectrum), warnings=study.warnings(spreads)
        )
    return Recommendation(
        algorithm=best.algorithm,
        reason=_reason(study, spectrum, best, runnable),
        warnings=(*study.warnings(spreads), *_noise(study, spectrum, best)),
    )


def _too_little(study: Study, spectrum: AssumedSpectrum) -> str:
    """Return the reason why nothing can be recommended, and the least sufficient epsilon."""

    def refused(times: float) -> float:
        larger = replace(study, epsilon=study.epsilon * times)
        return float(all(predict(larger, algorithm, spectrum).refused for algorithm in CANDIDATES))

    times = least_factor(refused, largest_epsilon(study) / study.epsilon)
    if times is None:
        return "no algorithm can run this study; see the reason of each"
    return (
        f"none: epsilon = {shown(study.epsilon)} is too small for every algorithm that reads records; "
        f"raise it to {shown_up(study.epsilon * times * 1.05, 2)} or more"
    )


def _reason(
    study: Study, spectrum: AssumedSpectrum, best: Prediction, runnable: Mapping[Algorithm, Prediction]
) -> str:
    statement = f"{best.algorithm.value}: its predicted error is {_sine(best)}"
    if best.algorithm not in CANDIDATES:
        trust = " and needs exact sums at the coordinator" if best.trusted else ""
        if not runnable.keys() & set(CANDIDATES):
            return f"{statement}, and no candidate of `auto` can run this study{trust}"
        return f"{statement}, less than half that of the choice of `auto`{trust}"
    others = [runnable[name] for name in CANDIDATES if name in runnable and name is not best.algorithm]
    if not others:
        return f"{statement}, and no other candidate of `auto` can run this study"
    against = f"{statement}; others: " + ", ".join(f"{one.algorithm.value} {_sine(one)}" for one in others)
    if best.raw > min(one.raw for one in others):
        than = "no spectrum is stated, and" if not spectrum.known else "the others are hardly better, and"
        against = f"{against}; {than} it is seldom far from the best"
    return f"{against}; {_why(best.algorithm, spectrum)}"


def _why(algorithm: Algorithm, spectrum: AssumedSpectrum) -> str:
    """Return the advantage of the candidate over the others."""
    flat = f"the total variance is about {spectrum.flatness:.1f} times the first component's"
    match algorithm:
        case Algorithm.REFINED_COV:
            return "after a first noised matrix it measures only what changes the components"
        case Algorithm.REFINED_PCA:
            return "after first gradients it measures only what changes the components"
        case Algorithm.DP_PCA:
            return f"{flat}, so noise on gradients has less effect than noise on a whole matrix"
        case _:
            return f"{flat}, so one noised matrix has less noise than many queries"


def _sine(one: Prediction) -> str:
    return "unknown" if one.error is None else f"{one.error.median:.2g}"


def _noise(study: Study, spectrum: AssumedSpectrum, best: Prediction) -> tuple[str, ...]:
    if best.error is None or best.raw <= USABLE:
        return ()
    what = "would be mostly noise" if best.raw >= MOSTLY_NOISE else "would be rough"
    named = study.with_algorithm(best.algorithm)
    few = usable_components(named, spectrum)
    found = filter(None, (remedies_text(named, spectrum), f"components = {few}" if few else ""))
    remedy = " or ".join(found) or "no number of records, no epsilon and no fewer components"
    return (f"the answer {what} on this spectrum; {remedy} would do",)
