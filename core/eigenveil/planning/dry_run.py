"""Which questions a plan will ask, found by running its algorithm on imagined releases.

No data is involved: the imagined releases are built from public numbers of the plan. The number of
rounds and every price are exact as long as the algorithm does not adapt them to what was released. Where the
first releases choose, every way is rehearsed.
"""

from __future__ import annotations

from collections.abc import Sequence

from eigenveil.algorithms.gradient.auto import Way, ways_of
from eigenveil.algorithms.shared.preparation import SMALL
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.noise_ratio import fits
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import Preimage
from eigenveil.session import Session
from eigenveil.study.price import MAX_ROUNDS
from eigenveil.study.study import Study

# With MAX_ROUNDS, what one study may ask of everybody: far beyond what an algorithm asks by default, and
# little enough for a coordinator and every site to rehearse before they agree to it.
MAX_NUMBERS = 2**25
SIZES = (SMALL - 1, SMALL)  # on either side of where the mean's share changes
AMPLE = 20  # micro-rho


def courses(plan: Plan) -> tuple[tuple[RoundQuery, ...], ...]:
    """All that may be asked: the queries of a rehearsal, and of one for each way that the first releases may
    choose, with as many records as the study expects and with the most there can be. None is longer.

    Raises:
        RequestError: as by `rehearse`, on any of the ways.
    """
    ways = [(records, way) for way in ways_of(plan) for records in (None, plan.most_records)]
    return (rehearse(plan), *(rehearse(plan, records, way) for records, way in ways))


def rehearse(plan: Plan, records: int | None = None, way: Way | None = None) -> tuple[RoundQuery, ...]:
    """The queries the plan asks when the federation holds `records` unremarkable records: as many as the
    study expects, if nothing is said. `way` is what the first releases choose then.

    Raises:
        RequestError: the budget is too small for one of them, or they are more than `MAX_ROUNDS` or ask for
            more than `MAX_NUMBERS` numbers of a site.
    """
    return tuple(query for query, _ in rehearsed(plan, records, way))


def rehearsed(
    plan: Plan, records: int | None = None, way: Way | None = None
) -> tuple[tuple[RoundQuery, Release], ...]:
    """The queries of `rehearse`, each with the release that was imagined for it."""
    n = plan.study.expected_records if records is None else records
    session = Session(plan, way)
    rounds: list[tuple[RoundQuery, Release]] = []
    numbers = 0
    while (asked := session.pending) is not None:
        numbers += asked.query.length
        _check_size(len(rounds) + 1, numbers)
        release = Release.of(asked, asked.query.imagined(n), 1.0, plan.study.federation.sites)
        rounds.append((asked, release))
        session.feed(release)
    return tuple(rounds)


def _check_size(rounds: int, numbers: int) -> None:
    if rounds > MAX_ROUNDS or numbers > MAX_NUMBERS:
        raise RequestError(
            Code.BAD_STUDY,
            f"this study would ask more than {MAX_ROUNDS} questions, or for over {MAX_NUMBERS} numbers of "
            'each site; ask for fewer batches, components or columns, or rank = "block"',
        )


def check_every_size(plan: Plan, asked: Sequence[RoundQuery]) -> None:
    """Insist that no share of the budget is too small, however many records there turn out to be: shares
    depend on the noised count. `asked` is all that `courses` found for this plan.

    A share is at least a third of what it is at another count, and a turn that is made in eight steps at
    least a thirteenth of one that is made at once, so where what was asked pays far more than
    the least there is, no size can be refused; only beside that are both rehearsed.

    Raises:
        RequestError: one is; nothing was charged yet.
    """
    if not all(_ample(one, plan.study) for one in asked):
        for records in SIZES:
            for way in ways_of(plan) or (None,):
                rehearse(plan, records, way)


def _ample(asked: RoundQuery, study: Study) -> bool:
    """Whether a question could pay a twentieth as well, and its noise be that of the least price there is.
    What fetches a fingerprint's original pays that at every count."""
    return isinstance(asked.query, Preimage) or (asked.micro_rho >= AMPLE and fits(asked, study, 1))
