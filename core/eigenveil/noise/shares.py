"""A site's share of the noise under secure aggregation: so much that the honest sites' shares are enough.

Of a set S at most t sites collude with the coordinator and know their own shares. So each share has the
variance sigma^2 / (|S| - t), and whatever anybody can unmask has at least sigma^2 in it [P31] [P32].
"""

from __future__ import annotations

import math

from eigenveil.errors import Code, InternalError
from eigenveil.noise.source import Block, NoiseSpec, noise_spec
from eigenveil.protocol.noise_ratio import QUIETEST
from eigenveil.protocol.query import NoiseLaw, RoundQuery
from eigenveil.queries import Additive
from eigenveil.study.study import Study


def share_spec(asked: RoundQuery, study: Study, sites: int) -> NoiseSpec:
    """What each of so many `sites` draws as its share of the noise of `asked`.

    Privacy: [P32] any sites - study.colluders shares add up to the noise of `asked`, or more.
    Cost: asked.price, for all shares together.

    Raises:
        InternalError: no masked question: its noise is no sum of shares, or nobody would be honest.
    """
    honest = sites - study.colluders
    if not (
        study.masked and isinstance(asked.query, Additive) and asked.law is NoiseLaw.GAUSSIAN and honest > 0
    ):
        raise InternalError(
            Code.BUG, "a share of noise was asked for that is no part of masked Gaussian noise"
        )
    whole = noise_spec(
        asked.query, asked.micro_rho, study.neighbours, study.max_sites_per_person, asked.law, among=honest
    )
    return NoiseSpec(
        blocks=tuple(Block(count=block.count, scale=max(block.scale, QUIETEST)) for block in whole.blocks)
    )


def released_sigma(asked: RoundQuery, study: Study, sites: int) -> float:
    """The largest standard deviation of the noise in a sum of `sites` masked answers."""
    return share_spec(asked, study, sites).sigma * math.sqrt(sites)
