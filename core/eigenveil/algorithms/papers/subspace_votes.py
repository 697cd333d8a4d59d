"""Common steps of the algorithms of [SUB]: budget shares, count, votes, preimage and its real subspace."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from flint import fmpz_mat

from eigenveil.accounting.zcdp import mu
from eigenveil.algorithms.shared.preparation import LEAST_COUNT
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray, IntArray, digest, frozen
from eigenveil.numerics.linalg import fix_signs, orthonormal, single_blas_thread
from eigenveil.protocol.estimate import Estimate, StepsTo
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.queries import Count, Preimage, TrustedQuery
from eigenveil.queries.papers.fingerprints import MOST_RANK, PRIME, Cells, Pool, Subsamples
from eigenveil.study.composition import micro_rho_of
from eigenveil.study.grid import S

COUNT_SHARE = 0.05  # of epsilon
FETCH_COST = 1  # micro-rho: the cost of a preimage query, as every query needs a cost
ROUNDED = 1 - 1e-9  # for rounding epsilons up when they are added


def vote_epsilon(plan: Plan) -> float:
    """Return the epsilon left for votes after count and preimage; 0 if the preimage would use it up. The cost
    is then below one micro-rho, which is refused."""
    left = mu(plan.micro_rho) * (1 - COUNT_SHARE) * ROUNDED - mu(FETCH_COST) * (2 - ROUNDED)
    return max(left, 0.0)


def vote_cost(plan: Plan, share: float) -> int:
    """Return the cost of a share of the epsilon for votes, in micro-rho."""
    return micro_rho_of(vote_epsilon(plan) * share)


def deal_key(plan: Plan) -> IntArray:
    """Return the key that deals records into subsamples and places the grid. Shape: (4,)."""
    return np.frombuffer(bytes.fromhex(digest("blocks", {"plan": plan.digest})), dtype="<i8").astype(np.int64)


def noised_count(plan: Plan) -> StepsTo[tuple[float, int]]:
    """Return the noised number of records and the number of sites that answered.

    Cost: 5 % of epsilon.

    Raises:
        RequestError: too many components for spans."""
    if plan.study.components > MOST_RANK:
        raise RequestError(Code.BAD_STUDY, f"subspaces have at most {MOST_RANK} components; use fewer")
    cost = micro_rho_of(mu(plan.micro_rho) * COUNT_SHARE * ROUNDED)
    release = yield PricedQuery(query=Count(), micro_rho=cost, distribution=NoiseDistribution.LAPLACE)
    return max(float(release.values[0]), LEAST_COUNT), max(1, len(release.present))


def release_vote(plan: Plan, query: TrustedQuery, share: float = 1.0) -> StepsTo[tuple[IntArray, IntArray]]:
    """Return the released winner, or zeros, and the indices of the voting sites. Shape: (released,), (m,)."""
    release = yield PricedQuery(query=query, micro_rho=vote_cost(plan, share), atto_delta=plan.atto_delta)
    places = {site: place for place, site in enumerate(plan.study.federation.sites)}
    return release.values, frozen(sorted(places[site] for site in release.present))


def fetch_preimage(
    fingerprint: IntArray, holders: IntArray, source: Subsamples | Cells | Pool
) -> StepsTo[IntArray | None]:
    """Return the preimage of a released fingerprint; None if a voting site is absent. Shape: (source.size,).

    Privacy: [P18]."""
    query = Preimage(
        fingerprint=fingerprint,
        voting_sites=holders,
        subsamples=source if isinstance(source, Subsamples) else None,
        cells=source if isinstance(source, Cells) else None,
        pool=source if isinstance(source, Pool) else None,
    )
    release = yield PricedQuery(query=query, micro_rho=FETCH_COST, distribution=NoiseDistribution.LAPLACE)
    return release.values[1:] if release.values[0] else None


UNORDERED = "only the subspace is estimated, without variances or an order of its directions"
HOLDER_ABSENT = (
    "a subspace won, but a site that voted did not answer the next query, so the subspace is unknown; "
    "run the study again"
)


def subspace_estimate(
    plan: Plan, components: FloatArray, records: float, *, sin_error: float, warnings: tuple[str, ...]
) -> Estimate:
    """Return an estimate of the subspace alone, without variances. Shape: components (k, d)."""
    if plan.study.centring:
        warnings += ("the subspace contains the middle of the bounds; the records were not centred",)
    return Estimate(
        components=components,
        explained_variance=np.zeros(len(components)),
        mean=np.zeros(plan.study.dimension),
        records=records,
        total_variance=0.0,
        noise_scale=0.0,
        sin_error=sin_error,
        warnings=(*warnings, UNORDERED),
    )


EXTRA_COLUMNS = 4  # columns examined together, beyond k
SAFETY_FACTOR = 2.0  # for float norms of a reduced basis, far above their error


def real_basis(form: IntArray) -> FloatArray | None:
    """Return an orthonormal basis of the real subspace of records in [-S, S] with span `form` modulo p.

    The records of a subsample are integer vectors, at most S in magnitude. On k pivot columns and r others
    they are short vectors of the lattice of all integer vectors in the span modulo p. That lattice has
    dimension k + r and volume p^r. If the last r vectors of a reduced basis (LLL) have Gram-Schmidt norms
    above `norm_bound`, all vectors of that norm lie in the span of the first k. So the records lie in the
    span of these k over the real numbers: a proof, not a heuristic. Rational reconstruction with small
    numerators would already fail at k = 3.

    None if the form does not determine it.

    Shape: (k, d), a reduced row echelon form modulo p -> (k, d)."""
    k, d = form.shape
    leading = (form != 0).argmax(axis=1)
    basis = np.zeros((k, d))
    basis[np.arange(k), leading] = 1.0
    with single_blas_thread():
        for columns in _groups(np.setdiff1d(np.arange(d), leading), k + EXTRA_COLUMNS):
            found = _ratios(form[:, columns])
            if found is None:
                return None
            basis[:, columns] = found
    return fix_signs(orthonormal(basis.T)).T


def _groups(columns: IntArray, size: int) -> Iterator[IntArray]:
    """Yield columns in groups of `size`; the last group is as large as the others if there are enough."""
    for start in range(0, len(columns), size):
        yield columns[max(0, min(start, len(columns) - size)) :][:size]


def _ratios(entries: IntArray) -> FloatArray | None:
    """Return the real matrix M with x = x_pivots M on these columns. Shape: (k, r), modulo p -> (k, r)."""
    k, r = entries.shape
    identity, zero = np.eye(k, dtype=np.int64), np.zeros((r, k), dtype=np.int64)
    rows = np.block([[identity, entries], [zero, PRIME * np.eye(r, dtype=np.int64)]])
    basis = np.array([[float(int(entry)) for entry in row] for row in fmpz_mat(rows.tolist()).lll().tolist()])
    gram_schmidt_norms = np.abs(np.diag(np.linalg.qr(basis.T)[1]))
    norm_bound = S * math.sqrt(k + r)
    if gram_schmidt_norms[k:].min() <= SAFETY_FACTOR * norm_bound:
        return None
    return np.linalg.solve(basis[:k, :k], basis[:k, k:])
