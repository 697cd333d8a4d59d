"""Laws of cost: for each step a sum of terms in n, d, k, sites, ..., fitted to what was measured.

Constants are at least 0 and make the squares of the logarithms of measured / modelled least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares, nnls

from benchmarks.growth.points import Point, Setting
from eigenveil.numerics.encoding import FloatArray

Terms = dict[str, Callable[[Setting], float]]

SEEN = 1e-3  # a term's share of what is measured, below which nothing is known of it

TERMS: Terms = {
    "1": lambda s: 1.0,
    "n": lambda s: float(s.records),
    "n d": lambda s: float(s.records) * s.columns,
    "min(n d, 2²⁰)": lambda s: float(min(s.records * s.columns, 2**20)),  # what is worked on at a time
    "n d k": lambda s: float(s.records) * s.columns * s.components,
    "n d²": lambda s: float(s.records) * s.columns**2,
    "d": lambda s: float(s.columns),
    "d k": lambda s: float(s.columns) * s.components,
    "d k²": lambda s: float(s.columns) * s.components**2,
    "d²": lambda s: float(s.columns) ** 2,
    "d³": lambda s: float(s.columns) ** 3,
    "L": lambda s: float(s.numbers),
    "m": lambda s: float(s.sites),
    "m L": lambda s: float(s.sites) * s.numbers,
    "studies": lambda s: float(s.studies),
}
LAWS: dict[tuple[str, str], tuple[str, ...]] = {
    ("loading", "seconds"): ("1", "n", "n d"),
    ("loading", "again_seconds"): ("1", "n d"),
    ("loading", "processor_seconds"): ("1", "n", "n d"),
    ("loading", "peak_bytes"): ("1", "min(n d, 2²⁰)", "d"),
    ("gradient", "processor_seconds"): ("1", "n", "n d", "n d k", "d k"),
    ("gradient", "peak_bytes"): ("1", "min(n d, 2²⁰)", "d k"),
    ("gram", "processor_seconds"): ("1", "n", "n d", "n d²", "d²"),
    ("gram", "peak_bytes"): ("1", "min(n d, 2²⁰)", "d²"),
    ("gradient-check", "processor_seconds"): ("1", "d k"),
    ("gram-check", "processor_seconds"): ("1", "d²", "d³"),
    ("gram-check", "peak_bytes"): ("1", "d²"),
    ("sum", "processor_seconds"): ("1", "m L"),
    ("noise", "processor_seconds"): ("1", "L"),
    ("masking", "processor_seconds"): ("1", "m", "L", "m L"),
    ("masking", "peak_bytes"): ("1", "L"),
    ("seal", "seconds"): ("1", "L"),
    ("replay", "processor_seconds"): ("1", "d k", "d k²"),
    ("planning", "processor_seconds"): ("1", "d", "d²"),
    ("planning", "peak_bytes"): ("1", "d", "d²"),
    ("sealing", "processor_seconds"): ("1", "d²", "d³"),
    ("sealing", "seconds"): ("1", "d²", "d³"),
    ("eigen", "processor_seconds"): ("1", "d²", "d³"),
    ("eigen", "peak_bytes"): ("1", "d²"),
    ("round", "seconds"): ("1", "m", "m L"),
    ("round", "coordinator_seconds"): ("1", "m", "m L"),
    ("round", "peak_bytes"): ("1", "m", "m L"),
    ("past", "seconds"): ("1", "studies"),
    ("past", "start_seconds"): ("1", "studies"),
    ("past", "list_seconds"): ("1", "studies"),
    ("past", "peak_bytes"): ("1", "studies"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """One step's cost. `typical` and `worst` are ratios, of at least 1, between what was measured and what it
    says: the root mean square of their logarithms, and the largest."""

    step: str
    quantity: str
    constants: dict[str, float]
    typical: float
    worst: float
    points: int

    def __call__(self, setting: Setting) -> float:
        return sum(constant * TERMS[term](setting) for term, constant in self.constants.items())

    def __str__(self) -> str:
        parts = [
            f"{constant:.2g}" if term == "1" else f"{constant:.2g} {term}"
            for term, constant in self.constants.items()
            if constant
        ]
        return " + ".join(parts) or "0"


Laws = dict[tuple[str, str], Law]


def fitted(points: Sequence[Point]) -> Laws:
    """Every law of which there are points."""
    found = {}
    for (step, quantity), terms in LAWS.items():
        here = [one for one in points if one.setting.what == step and one.measured.get(quantity, 0) > 0]
        if here:
            found[step, quantity] = _fit(step, quantity, terms, here)
    return found


def _fit(step: str, quantity: str, terms: tuple[str, ...], points: Sequence[Point]) -> Law:
    measured: FloatArray = np.array([one.measured[quantity] for one in points])
    design = np.array([[TERMS[term](one.setting) for term in terms] for one in points])
    scales = np.where(design.max(axis=0) > 0, design.max(axis=0), 1.0)  # they reach from 1 to 10^12
    design /= scales
    constants = _least_logs(design, measured)
    missed = np.log(design @ constants / measured)
    return Law(
        step=step,
        quantity=quantity,
        constants={term: float(value) for term, value in zip(terms, constants / scales, strict=True)},
        typical=float(np.exp(np.sqrt(np.mean(missed**2)))),
        worst=float(np.exp(np.abs(missed).max())),
        points=len(points),
    )


def _least_logs(design: FloatArray, measured: FloatArray) -> FloatArray:
    """Constants of at least 0 whose law is least far from what was measured, in squares of logarithms: twice
    as much counts as half. Terms that are nowhere SEEN are left out. Shape: (m, p), (m,) -> (p,)."""
    logs, tiny = np.log(measured), float(measured.min()) * SEEN

    def missed(roots: FloatArray) -> FloatArray:
        return np.log(design @ roots**2 + tiny * SEEN) - logs

    first, _ = nnls(design / measured[:, None], np.ones(len(measured)))
    found = least_squares(missed, np.sqrt(first + tiny), xtol=1e-14, ftol=1e-14, gtol=1e-14, max_nfev=5000)
    constants: FloatArray = found.x**2
    share = (design * constants / (design @ constants + tiny * SEEN)[:, None]).max(axis=0)
    return np.where(share > SEEN, constants, 0.0)
