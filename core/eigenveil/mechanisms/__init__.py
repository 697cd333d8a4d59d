"""From an exact sum to the values that may be published; only the barrier calls it."""

from __future__ import annotations

from eigenveil.errors import Code, InternalError
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


def noise_ahead(query: RoundQuery, study: Study) -> NoiseSpec | None:
    """The noise of an answer that can be drawn before the sum is known; None if it depends on more."""
    if query.law is NoiseLaw.STABILITY:
        return stability_histogram.noise_of(query, study)[0]
    if isinstance(query.ask, Spectrum):
        return eigenvalues.noise_of(query, query.ask, study)
    if isinstance(query.ask, RadiusSearch):
        return sparse_vector.noise_of(query.ask, query.micro_rho, study)
    if isinstance(query.ask, Additive):
        multiplicity = study.max_sites_per_person
        return noise_spec(query.ask, query.micro_rho, study.neighbours, multiplicity, query.law)
    return None


def publishable(
    query: RoundQuery, total: IntArray, study: Study, noise: NoiseSource, present: tuple[str, ...] = ()
) -> Outcome:
    """What is released of `total`, from the sites that are `present`.

    Shape: total as the question's answers add up to; values (asks.released(query.ask),).
    Neighbours: as the study says.
    Privacy: [P2] for added noise; the claim of its own mechanism otherwise.
    Cost: query.price.
    """
    match query.ask:
        case Spectrum() as ask:
            return eigenvalues.release(query, ask, total, study, noise)
        case Eigenvectors() as ask:
            return eigenvectors.release(query, ask, total, study, noise)
        case Subspace() as ask:
            return leading_subspace.release(query, ask, total, study, noise)
        case ShuffledRecord() as ask:
            return local_randomizer.release(query, ask, total, study, noise)
        case RadiusSearch() as ask:
            return sparse_vector.release(query, ask, total, study, noise)
        case SpanVotes() | CellVotes() as ask:
            return fingerprint_votes.release(query, ask, total, study, noise)
        case RankVotes() as ask:
            return rank_selection.release(query, ask, total, study, noise)
        case SpanGap() as ask:
            return score_gap.release(query, ask, total, study, noise)
        case Preimage() as ask:
            return preimage.release(ask, total, study, present)
        case _ if query.law is NoiseLaw.STABILITY:
            return stability_histogram.release(query, total, study, noise)
        case _:
            return _added(query, query.ask, total, study, noise)


def _added(query: RoundQuery, ask: Additive, total: IntArray, study: Study, noise: NoiseSource) -> Outcome:
    spec = noise_spec(ask, query.micro_rho, study.neighbours, study.max_sites_per_person, query.law)
    drawn = noise.draw(spec)
    if drawn.shape != total.shape or drawn.dtype.kind != "i":
        raise InternalError(Code.BUG, "the noise source drew another number or kind of values than asked")
    return Outcome(values=added(total, drawn), sigma=spec.sigma)
