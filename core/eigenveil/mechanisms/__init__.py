"""Mechanisms: from an exact sum to the values of a release. Only the barrier calls them.

Neighbours are the study's, unless a docstring says otherwise."""

from __future__ import annotations

from eigenveil.mechanisms.papers import covariance, single_pass, smooth_sensitivity, subspaces
from eigenveil.mechanisms.result import MechanismResult, noised
from eigenveil.noise.source import NoiseSource, NoiseSpec, noise_spec, released_sigma
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.queries import (
    AdditiveQuery,
    CellVotes,
    Eigenvectors,
    Preimage,
    RadiusSearch,
    RankVotes,
    ShuffledRecord,
    SpanGap,
    SpanVotes,
    Spectrum,
    Subspace,
)
from eigenveil.study.study import Study


def data_independent_noise(priced: PricedQuery, study: Study) -> NoiseSpec | None:
    """Return the noise that can be drawn before the sum is known. None if the noise depends on the sum, or if
    the answers contain it already."""
    if study.masked:
        return None
    if priced.distribution is NoiseDistribution.STABILITY:
        return single_pass.stability_noise_spec(priced, study)[0]
    if isinstance(priced.query, Spectrum):
        return covariance.eigenvalue_noise_spec(priced, priced.query, study)
    if isinstance(priced.query, RadiusSearch):
        return covariance.radius_noise_spec(priced.query, priced.micro_rho, study)
    if isinstance(priced.query, AdditiveQuery):
        return _additive_noise(priced, priced.query, study)
    return None


def apply_mechanism(
    priced: PricedQuery, total: IntArray, study: Study, noise: NoiseSource, present: tuple[str, ...] = ()
) -> MechanismResult:
    """Return the release of `total`, from the sites that are `present`.

    Shape: total as the answers add up to; values (released_length(priced.query),).
    Privacy: [P2] for added noise, [P32] for noise inside masked answers; otherwise the claim of the
    mechanism.
    Cost: priced.cost."""
    match priced.query:
        case Spectrum() as query:
            return covariance.release_eigenvalues(priced, query, total, study, noise)
        case Eigenvectors() as query:
            return covariance.release_eigenvectors(priced, query, total, study, noise)
        case Subspace() as query:
            return smooth_sensitivity.release_subspace(priced, query, total, study, noise)
        case ShuffledRecord() as query:
            return single_pass.release_shuffled_record(priced, query, total, study, noise)
        case RadiusSearch() as query:
            return covariance.release_radius(priced, query, total, study, noise)
        case SpanVotes() | CellVotes() as query:
            return subspaces.release_most_voted(priced, query, total, study, noise)
        case RankVotes() as query:
            return subspaces.release_rank(priced, query, total, study, noise)
        case SpanGap() as query:
            return subspaces.release_leading_span(priced, query, total, study, noise)
        case Preimage() as query:
            return subspaces.release_preimage(query, total, study, present)
        case _ if study.masked:  # the sum contains the noise of all shares
            return MechanismResult(values=total, sigma=released_sigma(priced, study, len(present)))
        case _ if priced.distribution is NoiseDistribution.STABILITY:
            return single_pass.release_stability_histogram(priced, total, study, noise)
        case _:
            return noised(total, _additive_noise(priced, priced.query, study), noise)


def _additive_noise(priced: PricedQuery, query: AdditiveQuery, study: Study) -> NoiseSpec:
    return noise_spec(
        query, priced.micro_rho, study.neighbours, study.max_sites_per_person, priced.distribution
    )
