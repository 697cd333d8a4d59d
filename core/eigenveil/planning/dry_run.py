"""Which questions a plan will ask, found by running its algorithm on imagined releases.

No data is involved: the imagined releases are built from public numbers of the plan. The number of
rounds and every price are exact as long as the algorithm does not adapt them to what was released.
"""

from __future__ import annotations

from eigenveil.algorithms.shared.preparation import SMALL
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.release import Release
from eigenveil.session import Session

# What one study may ask of everybody: far beyond what an algorithm asks by default, and little enough for a
# coordinator and every site to rehearse before they agree to it.
MAX_ROUNDS = 2**12
MAX_NUMBERS = 2**25
SIZES = (SMALL - 1, SMALL)  # on either side of where the mean's share changes


def rehearse(plan: Plan, records: int | None = None) -> tuple[RoundQuery, ...]:
    """The queries the plan asks when the federation holds `records` unremarkable records: as many as the
    study expects, if nothing is said.

    Raises:
        RequestError: the budget is too small for one of them, or they are more than `MAX_ROUNDS` or ask for
            more than `MAX_NUMBERS` numbers of a site.
    """
    return tuple(query for query, _ in rehearsed(plan, records))


def rehearsed(plan: Plan, records: int | None = None) -> tuple[tuple[RoundQuery, Release], ...]:
    """The queries of `rehearse`, each with the release that was imagined for it."""
    n = plan.study.expected_records if records is None else records
    session = Session(plan)
    rounds: list[tuple[RoundQuery, Release]] = []
    numbers = 0
    while (asked := session.pending) is not None:
        numbers += asked.query.length
        _check_size(len(rounds) + 1, numbers)
        release = _imagined(asked, plan, n)
        rounds.append((asked, release))
        session.feed(release)
    return tuple(rounds)


def _check_size(rounds: int, numbers: int) -> None:
    if rounds > MAX_ROUNDS or numbers > MAX_NUMBERS:
        raise RequestError(
            Code.BAD_STUDY,
            f"this study would ask more than {MAX_ROUNDS} questions, or for over {MAX_NUMBERS} numbers of "
            'each site; ask for fewer batches or components, or rank = "block"',
        )


def check_every_size(plan: Plan) -> None:
    """Insist that no share of the budget is too small, however many records there turn out to be: shares
    depend on the noised count.

    Raises:
        RequestError: one is; nothing was charged yet.
    """
    for records in SIZES:
        rehearse(plan, records)


def _imagined(asked: RoundQuery, plan: Plan, n: int) -> Release:
    return Release(
        round=asked.round,
        query=asked.digest,
        values=asked.query.imagined(n),
        sigma=1.0,
        micro_rho=asked.cost.micro_rho,
        atto_delta=asked.cost.atto_delta,
        present=plan.study.federation.sites,
    )
