"""The noise of one local randomiser among the shuffled."""

from __future__ import annotations

from eigenveil.accounting.amplification import local_micro_rho
from eigenveil.accounting.neighbours import Neighbours
from eigenveil.accounting.zcdp import ATTO, mu, scale_of
from eigenveil.errors import Code, RequestError
from eigenveil.mechanisms.outcome import Outcome
from eigenveil.noise.source import Block, NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import IntArray, added
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import ShuffledRecord
from eigenveil.study.study import Study


def spec(asked: RoundQuery, query: ShuffledRecord, study: Study) -> NoiseSpec:
    """Gaussian noise for one record.

    Raises:
        RequestError: the study's neighbours are not replace-one, or so few records gain nothing by an order.
    """
    if study.neighbours is not Neighbours.REPLACE_ONE:
        raise RequestError(
            Code.BAD_STUDY, 'a secret order hides who changed: state neighbours = "replace-one"'
        )
    epsilon = mu(asked.micro_rho)
    local = local_micro_rho(epsilon, asked.atto_delta / ATTO, query.batch.batches)
    scale = scale_of(query.diameter_squared(), local)
    return NoiseSpec(blocks=(Block(count=query.released, scale=scale),))


def release(
    asked: RoundQuery, query: ShuffledRecord, total: IntArray, study: Study, noise: NoiseSource
) -> Outcome:
    """The gradient plus noise.

    Shape: total (d k,).
    Neighbours: replace-one.
    Sensitivity: `ShuffledRecord.diameter_squared`.
    Privacy: [P24].
    Cost: epsilon = sqrt(2 rho) and asked.atto_delta, once for all records of the pass.
    """
    drawn = spec(asked, query, study)
    return Outcome(values=added(total, noise.draw(drawn)), sigma=drawn.sigma)
