"""From an exact sum to the values that may be published; only the barrier calls it."""

from __future__ import annotations

from eigenveil import stability
from eigenveil.asks import Additive, Spectrum
from eigenveil.errors import Code, InternalError
from eigenveil.ints import IntArray
from eigenveil.noise import NoiseSource, NoiseSpec, noise_spec
from eigenveil.query import Law, Query
from eigenveil.study import Study
from eigenveil.trusted import spectrum
from eigenveil.trusted.outcome import Outcome


def noise_ahead(query: Query, study: Study) -> NoiseSpec | None:
    """The noise of an answer that can be drawn before the sum is known; None if it depends on more."""
    if not isinstance(query.ask, Additive) or query.law is Law.STABILITY:
        return None
    multiplicity = study.max_sites_per_person
    return noise_spec(query.ask, query.micro_rho, study.neighbours, multiplicity, query.law)


def publishable(query: Query, total: IntArray, study: Study, noise: NoiseSource) -> Outcome:
    """What is released of `total`.

    Shape: total as the question's answers add up to; values (asks.released(query.ask),).
    Neighbours: as the study says.
    Privacy: [P2] for added noise; the claim of its own mechanism otherwise.
    Cost: query.price.
    """
    spec = noise_ahead(query, study)
    if spec is not None:
        drawn = noise.draw(spec)
        if drawn.shape != total.shape or drawn.dtype.kind != "i":
            raise InternalError(Code.BUG, "the noise source drew another number or kind of values than asked")
        return Outcome(values=total + drawn, sigma=spec.sigma)
    match query.ask:
        case Spectrum() as ask:
            return spectrum.release(query, ask, total, study, noise)
        case _:
            return stability.release(query, total, study, noise)
