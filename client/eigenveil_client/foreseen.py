"""What a plan lets a site foresee of the questions it will be asked."""

from __future__ import annotations

from eigenveil.asks import NAMES, Ask, Count, OnField
from eigenveil.plan import Plan
from eigenveil.rehearsal import rehearse

# The noised record count decides the mean's share (5 or 15 %) and the number of rounds (40 or 100), so a
# price may differ from the foreseen one by a factor of 3; a factor of 4 is refused.
PRICE_SLACK = 4


def price_floors(plan: Plan) -> dict[str, int]:
    """The kinds of question a plan asks, and the least each may cost, in micro-rho.

    Without a floor a coordinator could ask everything at no charge to the site's budget.
    """
    floors: dict[str, int] = {}
    for query in rehearse(plan):
        kind = NAMES[type(query.ask)]
        floors[kind] = min(floors.get(kind, query.micro_rho), query.micro_rho)
    return {kind: max(1, price // PRICE_SLACK) for kind, price in floors.items()}


def columns_of(ask: Ask) -> int | None:
    """How many columns a question is about; None if it does not say."""
    if isinstance(ask, Count):
        return None
    return (ask.field if isinstance(ask, OnField) else ask).centre.size
