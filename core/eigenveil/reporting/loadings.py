"""Loadings of the released components with their errors, a sentence on each component, and the warnings of a
result. Python, commands, pages and reports show these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.protocol.plan import planned_study
from eigenveil.reporting.document import HasRelease
from eigenveil.reporting.result import Result
from eigenveil.study.scaling import (
    NO_SPREADS,
    PlausibleSpread,
    Scaling,
    Spreads,
    coarse_warnings,
    differ,
    dominating,
    named,
)
from eigenveil.study.study import Study

MOST = 2 / 3  # share of a component's squared loadings that the columns of its sentence have
MOST_COLUMNS = 6  # in a sentence
NAMED = 4  # loadings of a component that are named
TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """Loading of a `column` in a component, and its error: about the most by which a component that is turned
    by the stated error differs; None if no error is stated."""

    column: str
    value: float
    error: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The value with its error on either side, within -1 and 1; None without an error."""
        if self.error is None:
            return None
        return max(-1.0, self.value - self.error), min(1.0, self.value + self.error)

    @property
    def from_noise(self) -> bool:
        """True if the loading is no larger than its error."""
        return self.error is not None and abs(self.value) <= self.error

    def text(self, digits: int) -> str:
        """Return the value with this many digits, and its error, rounded up."""
        value = f"{self.value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
        if self.error is None:
            return value
        return f"{value} ± {math.ceil(self.error * 10**digits) / 10**digits:.{digits}f}"

    def __str__(self) -> str:
        return self.text(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentLoadings:
    """Component `number`, from 1: its `variance`, its `share` of the variance, and a loading for each column,
    in their order. `from_noise`: it may be noise alone."""

    number: int
    variance: float
    share: float
    loadings: tuple[Loading, ...]
    from_noise: bool

    @property
    def strongest(self) -> tuple[Loading, ...]:
        """The loadings, largest first."""
        return tuple(sorted(self.loadings, key=lambda one: -abs(one.value)))

    @property
    def named(self) -> tuple[Loading, ...]:
        """The strongest loadings, as tables and pages name them."""
        return self.strongest[:NAMED]

    @property
    def strongest_text(self) -> str:
        """The same with their errors, as text."""
        return ", ".join(f"{one.column} ({one})" for one in self.named)

    @property
    def largest(self) -> tuple[Loading, ...]:
        """The fewest loadings whose squares are two thirds of the component's, largest first."""
        falling = self.strongest
        sums = np.cumsum([one.value**2 for one in falling])
        return falling[: int(np.searchsorted(sums, MOST * sums[-1] * (1 - 1e-12))) + 1]

    @property
    def sentence(self) -> str:
        """The columns that make up the component: the fewest whose squared loadings are two thirds of it, of
        which those that are no larger than their errors are left out."""
        largest = self.largest
        clear = [one for one in largest if not one.from_noise]
        if self.from_noise or not clear:
            return "not distinguishable from noise"
        text = _contrast(clear[:MOST_COLUMNS])
        if len(clear) > MOST_COLUMNS:
            text = f"{len(clear)} columns, most of all {text}"
        if len(clear) < len(largest):
            return f"in part {text}; the rest is not distinguishable from noise"
        return f"mostly {text}" + ("" if largest[0].error is not None else " (no error is stated)")


def _contrast(loadings: Sequence[Loading]) -> str:
    """Return the columns as a list, those of the other sign apart."""
    first = loadings[0].value > 0
    alike = [one.column for one in loadings if (one.value > 0) is first]
    others = [one.column for one in loadings if (one.value > 0) is not first]
    text = named(alike, most=MOST_COLUMNS)
    return f"{text}, against {named(others, most=MOST_COLUMNS)}" if others else text


def component_loadings(result: Result) -> tuple[ComponentLoadings, ...]:
    """Return the components of a result with labelled loadings. Source: releases alone [P7]."""
    errors = loading_errors(result)
    rows = zip(
        result.components.tolist(),
        result.components.tolist() if errors is None else errors.tolist(),
        result.explained_variance.tolist(),
        result.explained_variance_ratio.tolist(),
        result.from_noise,
        strict=True,
    )
    return tuple(
        ComponentLoadings(
            number=number,
            variance=variance,
            share=share,
            loadings=tuple(
                Loading(column=name, value=value, error=None if errors is None else error)
                for name, value, error in zip(result.columns, values, row, strict=True)
            ),
            from_noise=from_noise,
        )
        for number, (values, row, variance, share, from_noise) in enumerate(rows, 1)
    )


def loading_errors(result: Result) -> FloatArray | None:
    """Return the error of each loading, or None if the release states no error.

    Noise of sd t in an entry of the covariance turns component i towards j by about t / (l_i - l_j). Out of
    the span of all k it turns by at most the predicted sine s; if a covariance and its noise were released,
    by t sqrt(d - k) / (l_i - l_k) if that is less, since no other direction has more variance than the last
    component. A turn of sine s changes a loading by at most s times the column's part outside of the
    component. So the squared error of loading l is turn_i^2 (1 - sum_j v_jl^2) + sum_j turn_ij^2 v_jl^2.
    Source: `python -m benchmarks.loading_errors` measures the shares of loadings within it.
    Shape: (k, d)."""
    sine, (k, d) = result.predicted_sin_angle, result.components.shape
    if sine is None or not k or (k > 1 and result.noise_scale <= 0):
        return None
    squares, variances = result.components**2, result.explained_variance
    inside = _turns(result.noise_scale, np.abs(variances[:, None] - variances))
    np.fill_diagonal(inside, 0.0)
    out = np.full(k, sine)
    if result.noise is not None:
        gaps = variances[:-1] - variances[-1]
        out[:-1] = np.minimum(sine, _turns(result.noise_scale * math.sqrt(d - k), gaps))
    rest = np.maximum(1 - squares.sum(axis=0), 0.0)
    return np.asarray(np.minimum(np.sqrt(np.outer(out**2, rest) + inside**2 @ squares), 1.0))


def _turns(noise: float, gaps: FloatArray) -> FloatArray:
    """Return noise / gap, at most 1."""
    return np.where(gaps > noise, noise / np.maximum(gaps, TINY), 1.0)


def release_warnings(release: HasRelease) -> tuple[str, ...]:
    """Return the warnings of a release: its own, one if its components follow the widths of bounds, and one
    if bounds are too wide for the grid."""
    study, result = planned_study(release.document["plan"]), release.result
    coarse = coarse_warnings(study.columns, released_spreads(study, result), study.scaling, study.grid_steps)
    return (*result.warnings, *_bounds_warning(study, result), *coarse)


def released_spreads(study: Study, result: Result) -> Spreads:
    """Return the standard deviation of each column with a variance above twice its noise in the released
    covariance; none without a covariance."""
    if result.covariance is None:
        return NO_SPREADS
    square = np.ones(len(study.columns))
    if result.noise is not None and result.noise.divisors:
        square = np.array(result.noise.divisors) ** 2
    noise = result.noise_scale if result.noise is None else result.noise.diagonal / square
    variances = np.diag(result.covariance)
    spreads = np.sqrt(np.maximum(variances, 0.0)) * result.scale
    return {
        column.name: PlausibleSpread(column.unit, float(spread))
        for column, spread, seen in zip(study.columns, spreads, variances > 2 * noise, strict=True)
        if seen
    }


def _bounds_warning(study: Study, result: Result) -> tuple[str, ...]:
    """Return a warning that names the columns with far more than their part of the variance."""
    if study.scaling is not Scaling.BOUNDS or not len(result.components) or not differ(study.columns):
        return ()
    heavy = dominating(least_variances(result), result.total_variance / len(result.columns))
    if not heavy:
        return ()
    remedy, k = 'run it with scaling = "standard"', len(result.components)
    if result.noise is not None:
        free = f'Moments.of(result).pca({k}, scaling="standard")'
        remedy = f"use {free} or `eigenveil derive pca release.zip -k {k} --scaling standard`, or {remedy}"
    first = f'with scaling = "bounds" the components follow the widths of the bounds: {named(heavy)}'
    verb = "varies" if len(heavy) == 1 else "vary"
    return (f"{first} {verb} most within them. For the components of the correlations {remedy}",)


def least_variances(result: Result) -> Mapping[str, float]:
    """Return a lower bound of each column's variance, in the study's scaling, from a release: the diagonal of
    its covariance or else the components' part, less two standard deviations of the noise."""
    if result.covariance is not None:
        variances = np.diag(result.covariance)
    else:
        variances = result.explained_variance @ result.components**2
    least = np.maximum(variances - 2 * result.noise_scale, 0.0)
    return dict(zip(result.columns, least.tolist(), strict=True))
