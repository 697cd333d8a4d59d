"""From an exact sum to the values that may be published; only the barrier calls it."""

from __future__ import annotations

from eigenveil.mechanisms import (
    eigenvalues,
    eigenvectors,
    fingerprint_votes,
    leading_subspace,
    local_randomizer,
    preimage,
    rank_selection,
    score_gap,
    sparse_vector,
    stability_histogram,
)
from eigenveil.mechanisms.outcome import Outcome
from eigenveil.noise.shares import released_sigma
from eigenveil.noise.source import NoiseSource, NoiseSpec, noise_spec
from eigenveil.numerics.encoding import IntArray, added
from eigenveil.protocol.query import NoiseLaw, RoundQuery
from eigenveil.queries import (
    Additive,
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


def noise_ahead(asked: RoundQuery, study: Study) -> NoiseSpec | None:
    """The noise of an answer that can be drawn before the sum is known; None if it depends on more, or is
    in the answers already."""
    if study.masked:
        return None
    if asked.law is NoiseLaw.STABILITY:
        return stability_histogram.noise_of(asked, study)[0]
    if isinstance(asked.query, Spectrum):
        return eigenvalues.noise_of(asked, asked.query, study)
    if isinstance(asked.query, RadiusSearch):
        return sparse_vector.noise_of(asked.query, asked.micro_rho, study)
    if isinstance(asked.query, Additive):
        multiplicity = study.max_sites_per_person
        return noise_spec(asked.query, asked.micro_rho, study.neighbours, multiplicity, asked.law)
    return None


def publishable(
    asked: RoundQuery, total: IntArray, study: Study, noise: NoiseSource, present: tuple[str, ...] = ()
) -> Outcome:
    """What is released of `total`, from the sites that are `present`.

    Shape: total as the answers add up to; values (released(asked.query),).
    Neighbours: as the study says.
    Privacy: [P2] for added noise, [P32] for noise that is in masked answers; the claim of its own mechanism
    otherwise.
    Cost: asked.price.
    """
    match asked.query:
        case Spectrum() as query:
            return eigenvalues.release(asked, query, total, study, noise)
        case Eigenvectors() as query:
            return eigenvectors.release(asked, query, total, study, noise)
        case Subspace() as query:
            return leading_subspace.release(asked, query, total, study, noise)
        case ShuffledRecord() as query:
            return local_randomizer.release(asked, query, total, study, noise)
        case RadiusSearch() as query:
            return sparse_vector.release(asked, query, total, study, noise)
        case SpanVotes() | CellVotes() as query:
            return fingerprint_votes.release(asked, query, total, study, noise)
        case RankVotes() as query:
            return rank_selection.release(asked, query, total, study, noise)
        case SpanGap() as query:
            return score_gap.release(asked, query, total, study, noise)
        case Preimage() as query:
            return preimage.release(query, total, study, present)
        case _ if study.masked:  # the sum came with the noise of all shares inside
            return Outcome(values=total, sigma=released_sigma(asked, study, len(present)))
        case _ if asked.law is NoiseLaw.STABILITY:
            return stability_histogram.release(asked, total, study, noise)
        case _:
            return _added(asked, asked.query, total, study, noise)


def _added(asked: RoundQuery, query: Additive, total: IntArray, study: Study, noise: NoiseSource) -> Outcome:
    spec = noise_spec(query, asked.micro_rho, study.neighbours, study.max_sites_per_person, asked.law)
    return Outcome(values=added(total, noise.draw(spec)), sigma=spec.sigma)
