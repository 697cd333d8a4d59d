"""Dry run: the queries of a plan, found by running its algorithm on assumed releases.

No data is involved: the assumed releases follow from public numbers of the plan. The number of rounds and
every cost are exact unless the algorithm adapts them to releases. If the first releases choose the first
stage, each one is rehearsed.
"""

from __future__ import annotations

from collections.abc import Sequence

from eigenveil.algorithms.recommended.auto import FirstStage, first_stages
from eigenveil.algorithms.shared.preparation import SMALL_SAMPLE
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.query_limits import noise_fits
from eigenveil.protocol.rounds import Release
from eigenveil.queries import Preimage
from eigenveil.session import Session
from eigenveil.study.composition import MAX_ROUNDS
from eigenveil.study.study import Study

# With MAX_ROUNDS, the limit of a study: far beyond the defaults of all algorithms, and small enough for a
# coordinator and every site to rehearse before they agree.
MAX_NUMBERS = 2**25
SIZES = (SMALL_SAMPLE - 1, SMALL_SAMPLE)  # on either side of the size at which the mean's share changes
AMPLE = 20  # micro-rho


def possible_rehearsals(plan: Plan) -> tuple[tuple[RoundQuery, ...], ...]:
    """Return the queries of all rehearsals: one by default, and two for each possible first stage.

    The two have the expected and the largest number of records. No run is longer than all of these.

    Raises:
        RequestError: as `rehearse`, for any first stage.
    """
    branches = [
        (records, first_stage) for first_stage in first_stages(plan) for records in (None, plan.most_records)
    ]
    return (rehearse(plan), *(rehearse(plan, records, first_stage) for records, first_stage in branches))


def rehearse(
    plan: Plan, records: int | None = None, first_stage: FirstStage | None = None
) -> tuple[RoundQuery, ...]:
    """Return the queries of the plan for `records` typical records, by default as many as the study expects.

    `first_stage` is the choice of the first releases.

    Raises:
        RequestError: the budget is too small for one of them, or they are more than `MAX_ROUNDS` rounds
            or more than `MAX_NUMBERS` numbers from a site.
    """
    return tuple(query for query, _ in rehearse_with_releases(plan, records, first_stage))


def rehearse_with_releases(
    plan: Plan, records: int | None = None, first_stage: FirstStage | None = None
) -> tuple[tuple[RoundQuery, Release], ...]:
    """Return the queries of `rehearse`, each with its assumed release."""
    n = plan.study.expected_records if records is None else records
    session = Session(plan, first_stage)
    rounds: list[tuple[RoundQuery, Release]] = []
    numbers = 0
    while (round_query := session.pending) is not None:
        numbers += round_query.query.length
        _check_size(len(rounds) + 1, numbers)
        release = Release.of(
            round_query, round_query.query.assumed_release(n), 1.0, plan.study.federation.sites
        )
        rounds.append((round_query, release))
        session.feed(release)
    return tuple(rounds)


def _check_size(rounds: int, numbers: int) -> None:
    if rounds > MAX_ROUNDS or numbers > MAX_NUMBERS:
        raise RequestError(
            Code.BAD_STUDY,
            f"the study needs more than {MAX_ROUNDS} rounds, or more than {MAX_NUMBERS} numbers from each "
            'site; use fewer batches, components or columns, or rank = "block"',
        )


def check_all_sizes(plan: Plan, round_query: Sequence[RoundQuery]) -> None:
    """Check that no share of the budget is too small at any number of records, as shares depend on the count.

    `round_query` is the result of `possible_rehearsals` for this plan. A share is at least a third of that at
    another count, and a refinement in eight steps costs at least a thirteenth of one in a single step. So if
    every cost is far above the minimum, no size can be refused; otherwise both sizes are rehearsed.

    Raises:
        RequestError: a share is too small; nothing was charged yet.
    """
    if not all(_has_ample_budget(one, plan.study) for one in round_query):
        for records in SIZES:
            for first_stage in first_stages(plan) or (None,):
                rehearse(plan, records, first_stage)


def _has_ample_budget(round_query: RoundQuery, study: Study) -> bool:
    """Return True if a query could cost a twentieth, and its noise is possible at the least cost.

    A preimage query has the least cost at every count.
    """
    return isinstance(round_query.query, Preimage) or (
        round_query.micro_rho >= AMPLE and noise_fits(round_query, study, 1)
    )
