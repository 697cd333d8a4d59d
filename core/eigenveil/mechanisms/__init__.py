"""Mechanisms: from an exact sum to the values of a release. Only the barrier calls them."""

from __future__ import annotations

from eigenveil.mechanisms.papers import covariance, single_pass, smooth_sensitivity, subspaces
from eigenveil.mechanisms.result import MechanismResult
from eigenveil.noise.source import NoiseSource, NoiseSpec, noise_spec, released_sigma
from eigenveil.numerics.encoding import IntArray, add_noise
from eigenveil.protocol.query import NoiseDistribution, RoundQuery
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


def data_independent_noise(round_query: RoundQuery, study: Study) -> NoiseSpec | None:
    """Return the noise that can be drawn before the sum is known.

    None if the noise depends on the sum, or if the answers contain it already.
    """
    if study.masked:
        return None
    if round_query.distribution is NoiseDistribution.STABILITY:
        return single_pass.stability_noise_spec(round_query, study)[0]
    if isinstance(round_query.query, Spectrum):
        return covariance.eigenvalue_noise_spec(round_query, round_query.query, study)
    if isinstance(round_query.query, RadiusSearch):
        return covariance.radius_noise_spec(round_query.query, round_query.micro_rho, study)
    if isinstance(round_query.query, AdditiveQuery):
        multiplicity = study.max_sites_per_person
        return noise_spec(
            round_query.query, round_query.micro_rho, study.neighbours, multiplicity, round_query.distribution
        )
    return None


def apply_mechanism(
    round_query: RoundQuery, total: IntArray, study: Study, noise: NoiseSource, present: tuple[str, ...] = ()
) -> MechanismResult:
    """Return the release of `total`, from the sites that are `present`.

    Shape: total as the answers add up to; values (released_length(round_query.query),).
    Neighbours: as in the study.
    Privacy: [P2] for added noise, [P32] for noise inside masked answers; otherwise the claim of the
    mechanism.
    Cost: round_query.answer_cost.
    """
    match round_query.query:
        case Spectrum() as query:
            return covariance.release_eigenvalues(round_query, query, total, study, noise)
        case Eigenvectors() as query:
            return covariance.release_eigenvectors(round_query, query, total, study, noise)
        case Subspace() as query:
            return smooth_sensitivity.release_subspace(round_query, query, total, study, noise)
        case ShuffledRecord() as query:
            return single_pass.release_shuffled_record(round_query, query, total, study, noise)
        case RadiusSearch() as query:
            return covariance.release_radius(round_query, query, total, study, noise)
        case SpanVotes() | CellVotes() as query:
            return subspaces.release_most_voted(round_query, query, total, study, noise)
        case RankVotes() as query:
            return subspaces.release_rank(round_query, query, total, study, noise)
        case SpanGap() as query:
            return subspaces.release_leading_span(round_query, query, total, study, noise)
        case Preimage() as query:
            return subspaces.release_preimage(query, total, study, present)
        case _ if study.masked:  # the sum contains the noise of all shares
            return MechanismResult(values=total, sigma=released_sigma(round_query, study, len(present)))
        case _ if round_query.distribution is NoiseDistribution.STABILITY:
            return single_pass.release_stability_histogram(round_query, total, study, noise)
        case _:
            return _additive(round_query, round_query.query, total, study, noise)


def _additive(
    round_query: RoundQuery, query: AdditiveQuery, total: IntArray, study: Study, noise: NoiseSource
) -> MechanismResult:
    spec = noise_spec(
        query, round_query.micro_rho, study.neighbours, study.max_sites_per_person, round_query.distribution
    )
    return MechanismResult(values=add_noise(total, noise.draw(spec)), sigma=spec.sigma)
