"""What an attempt at a masked round is charged: its question's price, but a pass once a number [P33]."""

from __future__ import annotations

from eigenveil.accounting.zcdp import Cost
from eigenveil.protocol.budget import attempt_cost
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import batch_of
from eigenveil_server.storage.repository import Repository


def price_of(asked: RoundQuery, number: int, repository: Repository) -> Cost:
    """What attempt `number` at `asked` costs: a pass was paid as often as its most tried earlier batch was.

    Privacy: [P33] whatever members send of an attempt counts as released.
    """
    batch, study = batch_of(asked.query), asked.plan_digest
    if batch is None or batch.index == 0:
        return attempt_cost(asked.price, number)
    paid = repository.studies.most_attempts(study, batch.first, asked.round)
    return attempt_cost(asked.price, number, paid, repository.ledger.ledger.paid[study, batch.first])
