"""The planner against simulation: does it choose well, and is the error what it predicted?

Forty studies are drawn at random by a fixed seed: n, d, k, epsilon, a kind of spectrum and of records. The
planner is given the spectrum, or a public sample of other records of the kind; plain `auto` is given nothing.
What `auto` chooses from, and every algorithm that could be the best by its prediction, then runs a few times,
each time on fresh records with fresh noise."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks import planner_times
from benchmarks.families import box
from benchmarks.generated import Draw, random_records
from benchmarks.verdict import judge
from eigenveil.numerics.linalg import eigenpairs, sin_angle
from eigenveil.planning.choose import CANDIDATES, choose
from eigenveil.planning.error_models import clear
from eigenveil.planning.error_models.assumed_records import AssumedSpectrum, sample_spectrum, stated_spectrum
from eigenveil.planning.predict import Prediction, predict_all
from eigenveil.planning.recommend import recommend
from eigenveil.simulation import simulate
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Federation, Study

STUDIES = 40
WELL, OFTEN, NEVER = 1.15, 0.9, 1.3  # within WELL of the best as often as that, and never beyond NEVER
READABLE = 0.5  # where the best error is above, there is nothing to choose
FACTOR, PREDICTED_BELOW, WELL_PREDICTED = 1.5, 0.35, 0.9
RIVAL = 1.5  # an algorithm predicted worse than this times the best is not run
SAMPLE = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One random study, how to draw its records, and what the planner is told."""

    study: Study
    draw: Draw
    guess: AssumedSpectrum
    label: str


def case(generator: np.random.Generator) -> Case:
    """Return the next random study."""
    one = random_records(generator)
    study = Study(
        name="planned",
        columns=box(one.d, one.half),
        epsilon=one.epsilon,
        delta=1e-6,
        components=one.k,
        federation=Federation(sites=("all",)),
        max_records=2**20,
        expected_records=one.n,
    )
    told = one.kind != "normal"  # the spectrum says all of normal records, and not enough of others
    sample = one.draw(generator, SAMPLE) / one.half if told else None
    guess = (
        stated_spectrum(one.values.tolist(), one.d, one.k)
        if sample is None
        else sample_spectrum(sample, one.k)
    )
    return Case(study=study, draw=one.draw, guess=guess, label=f"{one.name} {'sample' if told else 'list'}")


def measure(case: Case, algorithms: list[Algorithm], repeats: int, seed: int) -> dict[Algorithm, float]:
    """Median sine to the records' own components, over repeats with fresh records and fresh noise."""
    sines: dict[Algorithm, list[float]] = {algorithm: [] for algorithm in algorithms}
    k, n = case.study.components, case.study.expected_records
    for repeat in range(repeats):
        rows = case.draw(np.random.default_rng([seed, repeat]), n)
        half = case.study.columns[0].half_range
        seen = np.clip(rows, -half, half)
        truth = eigenpairs(np.cov(seen.T))[1][:, :k].T
        for algorithm in algorithms:
            run = simulate(replace(case.study, algorithm=algorithm), {"all": rows}, seed=seed + repeat)
            sines[algorithm].append(sin_angle(truth, run.estimate.components))
    return {algorithm: statistics.median(found) for algorithm, found in sines.items()}


def rivals(predictions: tuple[Prediction, ...]) -> list[Algorithm]:
    """Candidates of `auto`, and every private algorithm that could be better by its prediction."""
    least = min(one.raw for one in predictions)
    return [
        one.algorithm
        for one in predictions
        if one.refused is None and (one.algorithm in CANDIDATES or one.raw <= RIVAL * least)
    ]


@dataclass(slots=True)
class Tally:
    """Errors so far: relative to the best, and to predictions."""

    told: list[float] = field(default_factory=list)
    auto: list[float] = field(default_factory=list)
    clear: list[float] = field(default_factory=list)
    unclear: list[float] = field(default_factory=list)

    def choose(self, found: dict[Algorithm, float], told: Algorithm, auto: Algorithm) -> str:
        """Compare what was chosen with the best; a word on what was chosen badly."""
        best = min(found, key=lambda algorithm: found[algorithm])
        if found[best] >= READABLE:
            return "noise"
        words = []
        for name, chosen, seen in (("told", told, self.told), ("auto", auto, self.auto)):
            seen.append(found[chosen] / found[best])
            if seen[-1] > WELL:
                words.append(f"{name} CHOSE {chosen.value}, {best.value} is {seen[-1]:.2f} times better")
        return ", ".join(words) or "ok"

    def predict(
        self, predictions: dict[Algorithm, Prediction], found: dict[Algorithm, float], sure: bool
    ) -> str:
        """Compare predictions below the limit that the planner stands by; a word on each algorithm."""
        words = []
        for algorithm, sine in found.items():
            error = predictions[algorithm].error
            assert error is not None
            verdict = ""
            if error.raw < PREDICTED_BELOW:
                ratio = sine / error.raw
                (self.clear if sure else self.unclear).append(ratio)
                verdict = f"({ratio:.2f}{'' if close(ratio) else ' OFF' if sure else ' off, unclear'})"
            words.append(f"{algorithm.value} {error.raw:.3g}->{sine:.3g}{verdict}")
        return "; ".join(words)

    def verdict(self) -> bool:
        """Print what came of it; whether all of it is as it should be."""
        good = [self._chosen("told the spectrum or a sample", self.told), self._chosen("auto", self.auto)]
        right = sum(map(close, self.clear))
        good.append(right >= WELL_PREDICTED * len(self.clear))
        print(
            f"predicted below {PREDICTED_BELOW} within a factor {FACTOR}: {right} of {len(self.clear)} "
            f"(at least {WELL_PREDICTED:.0%}): {'ok' if good[-1] else 'MISSED'}\n"
            "where the planner says that the gap is unclear: "
            f"{sum(map(close, self.unclear))} of {len(self.unclear)}"
        )
        return all(good)

    @staticmethod
    def _chosen(name: str, seen: list[float]) -> bool:
        well, most = sum(one <= WELL for one in seen), max(seen, default=1.0)
        often = well >= OFTEN * len(seen)
        word, failed = judge(f"planner, {name}", most, NEVER)
        print(
            f"{name}: chosen within {WELL} of the best: {well} of {len(seen)} (at least {OFTEN:.0%}): "
            f"{'ok' if often else 'MISSED'}; at most {most:.2f} (at most {NEVER}): {word}"
        )
        return often and not failed


def close(ratio: float) -> bool:
    return 1 / FACTOR <= ratio <= FACTOR


def check(seed: int, repeats: int) -> int:
    """Run all studies; 0 if the planner chose and predicted well."""
    generator, tally, begin = np.random.default_rng(seed), Tally(), time.perf_counter()
    for number in range(STUDIES):
        one = case(generator)
        predictions = predict_all(one.study, one.guess)
        told = recommend(one.study, one.guess, predictions).algorithm
        auto = choose(replace(one.study, algorithm=Algorithm.AUTO))
        assert told is not None
        found = measure(one, list(dict.fromkeys([told, auto, *rivals(predictions)])), repeats, 1000 * number)
        verdict = tally.choose(found, told, auto)
        words = tally.predict(
            {each.algorithm: each for each in predictions}, found, clear(one.study, one.guess)
        )
        spent = time.perf_counter() - begin
        print(f"{number + 1:2} {spent:4.0f}s {one.label:50} {verdict}: {words}", flush=True)
    return 0 if tally.verdict() else 1


def main() -> int:
    """Print a line a study, then the verdicts; exit 1 if the planner missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--times", action="store_true", help="measure the constants of times instead")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    if arguments.times:
        planner_times.main()
        return 0
    return check(arguments.seed, arguments.repeats)


if __name__ == "__main__":
    sys.exit(main())
