"""A prior as first estimate of the refinement: a noised matrix shrunk in the prior's axes where it fits them.

In the axes of a prior of variances p, an entry of the records' covariance is about p_i on the diagonal and 0
off it, up to a variance of p_i p_j a (twice that on the diagonal), as of a Wishart matrix of 1 / a degrees of
freedom. `a` is unknown, and so is a further variance b that no prior predicts. Both have grids, and their
likelihood is that of the released entries, whose noise is known. Each of the first axes has its own, so a
prior may hold for one component and not for another. What the entries do not show is as for a usual prior:
a small a and no b. All of it is post-processing [P7].

The guard compares the prior with the noised matrix:

- its axes explain the entries better than no axes do (`FITS`), and by a good part of what they would if they
  were right (`LEAST_SHARE`), else they may as well be random;
- its components have as much of the noised variance as a subspace that is only as wrong as the noise makes
  the matrix's own (`LOST`).

Where either fails, nothing of the prior is used: the next queries and their costs are those of a study
without one. Where the matrix is all noise, and could not confirm even a right prior, it is used, and the
stated error leaves it out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenveil.algorithms.recommended.gauss_cov import GaussCovariance
from eigenveil.algorithms.shared.refinement import AlignedCovariance
from eigenveil.algorithms.shared.stated_error import typical_sine
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, single_blas_thread
from eigenveil.study.grid import S
from eigenveil.study.prior import Prior

SPREADS = (0.0, *(2.0**-power for power in range(10, -3, -1)))  # a: 0, and 1 / 1,024 to 4
USUAL = 2.0**-5  # a of a usual prior; the odds of a larger one fall with it
FURTHER = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # b, in squared noise
PENALTY = 1.0  # log odds against each further value of b
EVIDENT = 20.0  # least odds of any b above 0
EVEN = 0.05  # share of the total variance that is even over all axes
SPARE = 2  # axes after the leading ones with grids of their own
NEGLIGIBLE = 1e-6  # odds
LEAST_WEIGHT = 1e-4  # of a release: keeps axes of equal variances apart, so that every machine finds the same
MISFIT = 0.5  # error of the total variance from the shares of a prior, relative to it
LEAST_TOTAL = 0.1  # of the squared clip radius, which limits the total variance on the other side
# Chosen on the tables of `python -m benchmarks.prior`, seeds 100 to 107, 200 to 207, 300 to 307 and 9100 to
# 9115, where it measures others. Of priors of the same population 95 % had .3 to 1.5 times the evidence that
# was predicted, and a loss of .2 to 1.2. Random axes had evidence below 0; shifted or rescaled columns half
# of the time below 0, and losses up to 180.
FITS, LEAST_SHARE = 3.0, 0.25
LOST = (0.75, 1.2)  # least and most limit of the loss
TRUE, CHANCE = 0.5, 2.5  # mean loss of the true axes, and its allowed excess in relative standard deviations
NOISE = 0.9  # sine by noise alone from which the matrix says nothing
TOO_LITTLE = 10.0  # evidence of a right prior below which a matrix of noise cannot tell


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PriorEstimate:
    """Estimate of the records' covariance from a prior and a noised matrix. `precision` is the prior's part
    of 1 / sd^2 of each entry of `estimate`. `confirmed`: the matrix shows that the prior's axes fit. Shape:
    precision (k, d - k)."""

    estimate: AlignedCovariance
    precision: FloatArray
    confirmed: bool

    def shares(self, found: AlignedCovariance) -> tuple[float, ...]:
        """Return the share of each component's precision that the prior has in `found`, the estimate after
        its refinement; the rest is from releases."""
        return tuple(np.minimum(self._parts(found), 1.0).mean(axis=1).tolist())

    def without(self, found: AlignedCovariance) -> AlignedCovariance:
        """Return `found` with the sd that its releases alone account for."""
        left = np.maximum(1 - self._parts(found), LEAST_WEIGHT)
        sd = found.sd[:, :-1] / np.sqrt(left)
        return replace(found, sd=np.hstack([sd, sd[:, -1:]]))

    def _parts(self, found: AlignedCovariance) -> FloatArray:
        # An answer that surprises widens `sd`, and is no reason to count more of the prior.
        return np.asarray(self.precision * np.minimum(found.sd, self.estimate.sd)[:, :-1] ** 2)


def estimate_from_prior(
    noised: GaussCovariance, first: AlignedCovariance, prior: Prior
) -> PriorEstimate | None:
    """Return the estimate, or None where the noised matrix contradicts the prior. `first` is the matrix on
    its own axes."""
    rotated = RotatedMatrix.of(noised, prior)
    evidence, predicted_evidence = rotated.evidence(), rotated.predicted_evidence()
    confirmed = evidence > max(FITS, LEAST_SHARE * predicted_evidence)
    unknown = _is_noise(first) and predicted_evidence < TOO_LITTLE and evidence > -FITS
    limit = largest_loss(first.k, first.all_variances.size - first.k)
    if unknown or (confirmed and rotated.lost(first) < limit):
        return rotated.estimate(first, confirmed=confirmed)
    return None


def largest_loss(k: int, others: int) -> float:
    """Return the limit of a prior's loss with k components and so many `others`: more entries have less
    chance in their sum."""
    return min(max(LOST[0], TRUE + CHANCE * math.sqrt(2 / (k * others))), LOST[1])


def _is_noise(first: AlignedCovariance) -> bool:
    """Return True if the noise alone turns the matrix's own components by about a right angle."""
    return typical_sine(first.spread((first.sd / first.gaps()) ** 2)) > NOISE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RotatedMatrix:
    """Noised matrix in a prior's axes. `noise` is the squared noise off the diagonal; `residuals` are the
    entries less the prior's variances, squared and halved on the diagonal as their noise is twice as large.

    Shape: axes (d, d), by columns, variances (d,), falling; matrix, residuals (d, d)."""

    axes: FloatArray
    variances: FloatArray
    matrix: FloatArray
    residuals: FloatArray
    noise: float
    clipping: float = 0.0

    @classmethod
    def of(cls, noised: GaussCovariance, prior: Prior) -> RotatedMatrix:
        """Return the matrix in the axes of a prior, whose total variance becomes the released one."""
        d = len(noised.matrix)
        axes = _completed(prior.directions(d))
        variances = np.full(d, prior.level)
        variances[: len(prior.variances)] = prior.variances
        with single_blas_thread():
            matrix = axes.T @ noised.matrix @ axes
        shares = variances / float(variances.sum())
        variances = _total(noised, shares, np.diagonal(matrix)) * ((1 - EVEN) * shares + EVEN / d)
        residuals = (matrix - np.diag(variances)) ** 2
        residuals[np.diag_indices(d)] /= 2
        return cls(
            axes=axes,
            variances=variances,
            matrix=matrix,
            residuals=residuals,
            noise=max(noised.scale**2 / 2, 1e-300),
            clipping=noised.clip.clipping_bias_factor,
        )

    def evidence(self) -> float:
        """Return the log odds that the entries give to the prior's axes and variances, against one variance
        for all entries, whatever the axes."""
        about_mean = (self.matrix - np.diag(np.full(len(self.matrix), self.variances.mean()))) ** 2
        about_mean[np.diag_indices(len(self.matrix))] /= 2
        return self._odds(self.residuals, about_mean)

    def predicted_evidence(self) -> float:
        """Return about the `evidence` of a prior that fits."""
        usual = USUAL * np.outer(self.variances, self.variances) + self.noise
        about_mean = usual + np.diag((self.variances - self.variances.mean()) ** 2 / 2)
        return self._odds(usual, about_mean)

    def _odds(self, squares: FloatArray, about_mean: FloatArray) -> float:
        upper = np.triu_indices(len(self.matrix))
        predicted = np.outer(self.variances, self.variances)[upper]
        even = np.full(len(predicted), float(predicted.mean()))
        return self._log_evidence(squares[upper], predicted) - self._log_evidence(about_mean[upper], even)

    def _log_evidence(self, squares: FloatArray, predicted: FloatArray) -> float:
        """Return the log of the mean likelihood over all spreads above 0."""
        logs = np.array([_log_likelihood(squares, a * predicted + self.noise) for a in SPREADS[1:]])
        top = float(logs.max())
        return top + math.log(float(np.exp(logs - top).mean()))

    def lost(self, first: AlignedCovariance) -> float:
        """Return the noised variance that the prior's leading axes have less than the matrix's own, in twice
        the amount which the noise adds to the latter: at 1 both subspaces are about as wrong."""
        k, variances = first.k, first.all_variances
        own = first.basis[:, :k]
        with single_blas_thread():
            most = float(np.trace(own.T @ self.axes @ self.matrix @ self.axes.T @ own))
        level = np.maximum(np.median(variances), variances[None, k:])
        gaps = np.maximum(variances[:k, None] - level, math.sqrt(self.noise))
        clipping = self.clipping * variances[:k, None] * variances[None, k:]
        chance = 2 * float(((self.noise + clipping) / gaps).sum())
        return (most - float(np.diagonal(self.matrix)[:k].sum())) / chance

    def weights(self, k: int) -> FloatArray:
        """Return the weight of each released entry against the prior. Shape: -> (d, d), symmetric."""
        d = len(self.matrix)
        predicted, rows = np.outer(self.variances, self.variances), min(k + SPARE, d)
        weights = np.zeros((d, d))
        for i in range(rows):
            weights[i, i:] = self._weights(self.residuals[i], predicted[i])[i:]
        rest = np.triu(np.ones((d, d), dtype=bool))
        rest[:rows] = False
        if rest.any():
            weights[rest] = self._weights(self.residuals[rest], predicted[rest])
        return np.maximum(weights + np.triu(weights, 1).T, LEAST_WEIGHT)

    def _weights(self, squares: FloatArray, predicted: FloatArray) -> FloatArray:
        """Return the mean weight over all spreads, by the likelihood of entries with these squares. Shape:
        (n,), (n,) -> (n,)."""
        grid = [
            (a, b * self.noise, PENALTY * place + math.log(max(a / USUAL, 1.0)))
            for a in SPREADS
            for place, b in enumerate(FURTHER)
        ]
        known = self.noise + self.clipping * predicted
        logs = np.array(
            [_log_likelihood(squares, a * predicted + b + known) - penalty for a, b, penalty in grid]
        )
        odds = np.exp(logs - logs.max())
        further = np.array([b > 0 for _, b, _ in grid])
        if odds[further].sum() < EVIDENT * odds[~further].sum():
            odds[further] = 0.0
        mean = np.zeros_like(predicted)
        for share, (a, b, _) in zip(odds / odds.sum(), grid, strict=True):  # one at a time: d^2 / 2 numbers
            if share > NEGLIGIBLE:
                mean += share * (a * predicted + b) / (a * predicted + b + known)
        return mean

    def estimate(self, first: AlignedCovariance, *, confirmed: bool) -> PriorEstimate:
        """Return the shrunk matrix on its own axes."""
        k, weights = first.k, self.weights(first.k)
        means = np.diag(self.variances)
        values, turned = eigenpairs(means + weights * (self.matrix - means))
        with single_blas_thread():
            basis = self.axes @ turned
            share = (turned.T**2 @ weights @ turned**2)[:k, k:]  # of the release in each entry
        noise_factor = math.sqrt(float(weights[:k].mean()))
        level = max(first.level * noise_factor, 1e-6 * float(values[0]), 1e-300)
        share = np.clip(share, LEAST_WEIGHT, 1.0)
        sd = np.sqrt(share * self.noise)
        estimate = replace(
            first,
            basis=basis,
            variances=np.maximum(values, level),
            level=level,
            sd=np.hstack([sd, sd[:, -1:]]),
            gap_noise=first.gap_noise * noise_factor,
        )
        return PriorEstimate(estimate=estimate, precision=(1 - share) / sd**2, confirmed=confirmed)


def _log_likelihood(squares: FloatArray, variances: FloatArray) -> float:
    return -0.5 * float((np.log(variances) + squares / variances).sum())


def _total(noised: GaussCovariance, shares: FloatArray, diagonal: FloatArray) -> float:
    """Return the total variance within limits by the clip radius: a mean of the trace, and of the diagonal as
    far as it has these shares. The noise of the latter is smaller. Shape: (d,), (d,)."""
    clip, square = noised.clip, float(shares @ shares)
    most = (clip.radius / S) ** 2 / clip.retained
    shared = float(shares @ diagonal) / square
    noise = noised.scale**2 / square + (MISFIT * shared) ** 2
    trace_noise = noised.scale**2 * len(shares)
    total = (noised.trace * noise + shared * trace_noise) / max(noise + trace_noise, 1e-300)
    return min(max(total, LEAST_TOTAL * most), most)


def _completed(axes: FloatArray) -> FloatArray:
    """Return an orthonormal basis whose first columns are the axes. Shape: (m, d) -> (d, d)."""
    d = axes.shape[1]
    with single_blas_thread():
        basis, upper = np.linalg.qr(np.hstack([axes.T, np.eye(d)]))
    return np.asarray(basis * np.where(np.diagonal(upper)[:d] < 0, -1.0, 1.0))
