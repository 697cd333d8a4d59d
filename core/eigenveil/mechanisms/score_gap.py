"""Truncated Laplace noise on how far a data set is from one with another best candidate."""

from __future__ import annotations

import math

import numpy as np

from eigenveil.accounting.zcdp import ATTO, scale_of
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.mechanisms.fingerprint_votes import SLACK
from eigenveil.mechanisms.outcome import Outcome
from eigenveil.noise.source import Block, NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.query import NoiseLaw, RoundQuery
from eigenveil.queries import SpanGap
from eigenveil.queries.fingerprints import WORDS
from eigenveil.study.study import Study

DRAWS = 8  # at once; one of them nearly always lies within the support


def reach(scale: float, changed: int, delta: float) -> int:
    """The least A at which noise of scale b on {-A, ..., A} hides a change of up to `changed` but for delta.

    With r = exp(-1 / b), the law is r^|x| / Z with Z = (1 + r - 2 r^(A+1)) / (1 - r). Moved by D = changed,
    the D outermost points are left alone: r^(A+1) (r^-D - 1) / (1 + r - 2 r^(A+1)), which is at most delta
    from r^(A+1) = delta (1 + r) / (r^-D - 1 + 2 delta) down. In the limit r -> 1 that is A = (D / epsilon)
    ln(1 + (e^epsilon - 1) / (2 delta)), as in [SUB]. Everywhere else the ratio is at most r^-D [P16].
    """
    # Beyond e^700 floats end, and one point on either side hides everything already.
    moved = math.expm1(min(changed / scale, 700.0))
    ratio = delta * (1 + math.exp(-1 / scale)) / (moved + 2 * delta)
    return max(math.ceil(-scale * math.log(ratio) * SLACK) - 1, changed)


def truncated(scale: float, bound: int, noise: NoiseSource) -> int | None:
    """One integer from the law r^|x| / Z on {-bound, ..., bound}, by rejection; None if all draws miss.

    Whether they do depends on no data, so a release may then be silent.
    """
    drawn = noise.draw(NoiseSpec(blocks=(Block(count=DRAWS, scale=scale, law=NoiseLaw.LAPLACE),)))
    within = drawn[np.abs(drawn) <= bound]
    return int(within[0]) if within.size else None


def clears(margin: int, scale: float, bound: int, noise: NoiseSource) -> bool:
    """Whether a margin with noise lies beyond all noise alone; never, if the margin is not above 0."""
    drawn = truncated(scale, bound, noise)
    return drawn is not None and max(0, margin) + drawn > bound


def release(asked: RoundQuery, query: SpanGap, total: IntArray, study: Study, noise: NoiseSource) -> Outcome:
    """The fingerprint of the best span, if its lead over the second best is wide; or zeros.

    Printed, the algorithm adds noise to every span that holds records, and so gives away a random one
    where none leads; nothing is released here unless the lead, less the noise, is above 0 for sure.

    Shape: total (6,) from the one site, or nothing; values (4,).
    Neighbours: as the study says.
    Sensitivity: D = what a person's record changes a score by; the lead, less D, moves by at most D.
    Privacy: [P16].
    Cost: epsilon = sqrt(2 rho), and asked.atto_delta.

    Raises:
        RequestError: the question has no delta of its own.
    """
    if asked.atto_delta < 1:
        raise RequestError(Code.BAD_STUDY, "a lead is tested at a delta of its own; state delta > 0")
    if total.size not in (0, query.length):
        raise InternalError(Code.BUG, "the lead among all records cannot be read off several sites' answers")
    changed = query.swing(study.neighbours) * study.max_sites_per_person
    scale = scale_of(changed**2, asked.micro_rho)
    bound = reach(scale, changed, asked.atto_delta / ATTO)
    margin = int(total[0]) - int(total[1]) - changed if total.size else 0
    said = clears(margin, scale, bound, noise)
    return Outcome(values=frozen(total[2:] if said else [0] * WORDS), sigma=math.sqrt(2) * scale)
