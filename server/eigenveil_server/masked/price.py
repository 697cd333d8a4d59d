"""What an attempt at a masked round is charged: its question's price, but a pass once a number [P33]."""

from __future__ import annotations

from eigenveil.accounting.zcdp import NOTHING, Cost
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import batch_of
from eigenveil_server.storage.repository import Repository


def price_of(asked: RoundQuery, number: int, repository: Repository) -> Cost:
    """What attempt `number` at `asked` costs.

    The batches of a pass are disjoint, so one number is paid for by all of them together, at what the first
    batch pays: no later one costs more [P9].

    Privacy: [P33] whatever members send of an attempt counts as released.
    """
    batch, study = batch_of(asked.query), asked.plan_digest
    if batch is None or batch.index == 0:
        return asked.price
    if number <= repository.studies.most_attempts(study, batch.first, asked.round):
        return NOTHING
    return repository.ledger.ledger.paid[study, batch.first]
