"""Plan of a study: the algorithm for `auto`, warnings about noise, and a dry run, from public numbers only.
The dry run finds the queries of a plan by running its algorithm on assumed releases, without data. The number
of rounds and every cost are exact unless the algorithm adapts them to releases. If the first releases choose
the first stage, each one is rehearsed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from eigenveil.accounting.formatting import rounded_up, shown
from eigenveil.algorithms.recommended.auto import WIDE, first_stages
from eigenveil.algorithms.recommended.refined_cov import FirstStage
from eigenveil.algorithms.shared.preparation import SMALL_SAMPLE
from eigenveil.errors import Code, RequestError
from eigenveil.planning.error_models import predict_plan_error
from eigenveil.planning.error_models.assumed_records import AssumedSpectrum, default_spectrum
from eigenveil.planning.error_models.perturbation import NOISE, PredictedError
from eigenveil.protocol.capabilities import Capabilities, common_versions
from eigenveil.protocol.plan import Plan, plan_for
from eigenveil.protocol.query import PricedQuery, RoundQuery
from eigenveil.protocol.query_limits import noise_fits
from eigenveil.protocol.rounds import Release
from eigenveil.queries import Preimage
from eigenveil.session import Session
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.composition import MAX_ROUNDS, affordable, largest_epsilon
from eigenveil.study.study import MAX_RECORDS, Choose, Scaling, Study
from eigenveil.study.toml import least_plan_version

# With MAX_ROUNDS, the limit of a study: far beyond the defaults of all algorithms, and small enough for a
# coordinator and every site to rehearse before they agree.
MAX_NUMBERS = 2**25
SIZES = (SMALL_SAMPLE - 1, SMALL_SAMPLE)  # on either side of the size at which the mean's share changes
AMPLE = 20  # micro-rho
DIVISIONS = 8  # rehearsals at most, of a budget and its pool


def possible_rehearsals(plan: Plan) -> tuple[tuple[RoundQuery, ...], ...]:
    """Return the queries of all rehearsals: one by default, and two for each possible first stage. The two
    have the expected and the largest number of records. With dp-pca more records may mean more rounds: then
    there is one for those. No run is longer than all of these. Raises RequestError: as `rehearse`, for any
    first stage."""
    branches = [
        (records, first_stage) for first_stage in first_stages(plan) for records in (None, plan.most_records)
    ]
    expected = rehearse(plan)
    if plan.algorithm is Algorithm.DP_PCA:
        largest = rehearse(plan, plan.most_records)
        return (expected, largest) if len(largest) > len(expected) else (expected,)
    return (expected, *(rehearse(plan, records, first_stage) for records, first_stage in branches))


def rehearse(
    plan: Plan, records: int | None = None, first_stage: FirstStage | None = None
) -> tuple[RoundQuery, ...]:
    """Return the queries of the plan for `records` typical records, by default as many as the study expects.
    `first_stage` is the choice of the first releases. Raises RequestError: the budget is too small for one of
    them, or they are more than `MAX_ROUNDS` rounds or more than `MAX_NUMBERS` numbers from a site."""
    return tuple(query for query, _ in rehearse_with_releases(plan, records, first_stage))


def rehearse_with_releases(
    plan: Plan, records: int | None = None, first_stage: FirstStage | None = None
) -> tuple[tuple[RoundQuery, Release], ...]:
    """Return the queries of `rehearse`, each with its assumed release."""
    n = plan.study.expected_records if records is None else records
    session = Session(plan, first_stage)
    numbers = 0
    while (round_query := session.pending) is not None:
        numbers += round_query.query.length
        if len(session.queries) >= MAX_ROUNDS or numbers > MAX_NUMBERS:
            raise RequestError(
                Code.BAD_STUDY,
                f"the study needs more than {MAX_ROUNDS} rounds, or over {MAX_NUMBERS} numbers from each "
                'site; use fewer batches, components or columns, or rank = "block"',
            )
        assumed = round_query.query.assumed_release(n)
        session.feed(Release.of(round_query, assumed, 1.0, plan.study.federation.sites))
    return tuple(zip(session.queries, session.releases, strict=True))


def answer_bytes(queries: Iterable[RoundQuery]) -> int:
    """Return the bytes of a site's answers to all queries."""
    return sum(8 * one.query.length for one in queries)


def check_all_sizes(plan: Plan, round_query: Sequence[RoundQuery]) -> None:
    """Check that no share of the budget is too small at any number of records, as shares depend on the count.
    `round_query` is the result of `possible_rehearsals` for this plan. A share is at least a third of that at
    another count, and a refinement in eight steps costs at least a thirteenth of one in a single step. So if
    every cost is far above the minimum, no size can be refused; otherwise both sizes are rehearsed. Raises
    RequestError: a share is too small; nothing was charged yet."""
    if not all(_has_ample_budget(one.priced, plan.study) for one in round_query):
        for records in SIZES:
            for first_stage in first_stages(plan) or (None,):
                rehearse(plan, records, first_stage)


def _has_ample_budget(priced: PricedQuery, study: Study) -> bool:
    """Return True if a query could cost a twentieth, and its noise is possible at the least cost. A preimage
    query has the least cost at every count."""
    return isinstance(priced.query, Preimage) or (
        priced.micro_rho >= AMPLE and noise_fits(replace(priced, micro_rho=1), study)
    )


def with_pool(plan: Plan) -> Plan:
    """Return a plan with its budget divided between its rounds and the pool of its spare attempts [P35]. The
    pool pays for as many attempts at the dearest query of a rehearsal. That query's share of the rounds is
    nearly the same at every budget, so few rehearsals find the division. Raises RequestError: as
    `possible_rehearsals`."""
    spares, best = plan.study.spare_attempts, plan
    if not spares:
        return plan
    total = affordable(plan.study, plan.algorithm).micro_rho
    micro_rho = total
    for _ in range(DIVISIONS):
        rest = min(total - micro_rho, spares * micro_rho)  # a plan's pool is no larger
        divided = replace(plan, micro_rho=micro_rho, spare_micro_rho=rest)
        pool = spares * dearest(divided)
        if best.micro_rho < micro_rho <= total - pool:
            best = replace(divided, spare_micro_rho=pool)
        micro_rho = max(plan.micro_rho, total * micro_rho // (micro_rho + pool))
        if micro_rho == divided.micro_rho:
            break
    return best


def dearest(plan: Plan) -> int:
    """Return the cost of the dearest query of a plan, in micro-rho, for any number of records.

    Costs follow the noised number of records: shares change at `SIZES`, and the fewer records, the fewer
    rounds and steps share the budget, so a single record has the dearest of them. The expected and the most
    records are rehearsed as well, all with each first stage and with the one that the releases choose. Raises
    RequestError: as `rehearse`."""
    records = dict.fromkeys((plan.study.expected_records, plan.most_records, 1, *SIZES))
    stages = (None, *first_stages(plan))
    courses = (rehearse(plan, n, first_stage) for n in records for first_stage in stages)
    return max((one.priced.micro_rho for course in courses for one in course), default=0)


@lru_cache(maxsize=64)
def dearest_share(study: Study, algorithm: Algorithm) -> float:
    """Return the share of the rounds' budget that the dearest query takes, from 0 to 1; 1 where no rehearsal
    is possible."""
    try:
        plan = plan_for(study, algorithm, federation="planner", submission="planner")
        return dearest(plan) / plan.micro_rho
    except RequestError:
        return 1.0


# Candidates of `auto`; the first is chosen unless another has a clearly smaller predicted error.
CANDIDATES = (Algorithm.REFINED_COV, Algorithm.REFINED_PCA, Algorithm.GAUSS_COV, Algorithm.DP_PCA)
NARROW_ONLY = (Algorithm.REFINED_COV, Algorithm.GAUSS_COV)
CLEAR_ADVANTAGE = 0.8
MOSTLY_NOISE, USABLE = 0.5, 0.35  # predicted sines: above the first mostly noise, below the second usable
STEPS = 12  # of a search for sufficient numbers


def choose(study: Study) -> Algorithm:
    """Return the study's algorithm; for `auto`, the best candidate on the default spectrum. AUTO stays if the
    first releases are to choose. At delta = 0 there is only one candidate."""
    if study.algorithm is not Algorithm.AUTO or (study.choose is Choose.DURING and study.delta > 0):
        return study.algorithm
    return best_candidate(study, default_spectrum(study.dimension, study.components))


def best_candidate(study: Study, spectrum: AssumedSpectrum) -> Algorithm:
    """Return the first candidate, unless on a known spectrum another has a clearly smaller error. A default
    spectrum is too weak evidence against the first: on random studies and clinical tables it was hardly ever
    far from the best, unlike each of the others (benchmarks/planner.py)."""
    runnable = candidates(study)
    if not spectrum.known or len(runnable) == 1:
        return runnable[0]
    errors = {one: _raw(study, one, spectrum) for one in runnable}
    other = min(runnable, key=lambda one: errors[one])
    return other if errors[other] < CLEAR_ADVANTAGE * errors[runnable[0]] else runnable[0]


def candidates(study: Study) -> tuple[Algorithm, ...]:
    """Return the candidates that can run: only a matrix can be pure, too many columns exclude a matrix, and
    a prior is for refined-cov.
    For standardised columns a plain matrix comes first: their variances are too close for a last stage to
    separate them, and it was never far from the best (docs/scaling.md)."""
    if study.delta == 0:
        return (Algorithm.GAUSS_COV,)
    if study.prior is not None:
        return (Algorithm.REFINED_COV,)
    runnable = [one for one in CANDIDATES if not (study.dimension > WIDE and one in NARROW_ONLY)]
    standard = study.scaling is Scaling.STANDARD
    return tuple(sorted(runnable, key=lambda one: standard and one is not Algorithm.GAUSS_COV))


def noise_warnings(study: Study) -> tuple[str, ...]:
    """Return a warning if the study is likely to release little but noise. It assumes the default spectrum,
    so it covers only the first component and clear cases."""
    one = replace(study, components=1)
    spectrum = default_spectrum(one.dimension, 1)
    if choose(one) not in (Algorithm.AUTO, *CANDIDATES) and not _needs_records(one, spectrum):
        return ()  # it states its own needs
    if _error(one, spectrum) < MOSTLY_NOISE:
        return _too_many(study)
    would_do = remedies_text(one, spectrum)
    sentence = (
        f"with about {study.expected_records} records, {study.dimension} columns and epsilon = "
        f"{shown(study.epsilon)} the result is likely to be mostly noise"
    )
    return (f"{sentence}; {would_do} would give a usable first component" if would_do else sentence,)


def _needs_records(study: Study, spectrum: AssumedSpectrum) -> bool:
    """Return True if a stated algorithm is predicted to release mostly noise, but not with the most records:
    without a model, or if only another spectrum would help, too little is known for a warning."""
    few, most = (
        _predicted(replace(study, expected_records=records), study.algorithm, spectrum)
        for records in (study.expected_records, MAX_RECORDS)
    )
    return few is not None and few.raw >= MOSTLY_NOISE and (most is None or most.raw < MOSTLY_NOISE)


def _too_many(study: Study) -> tuple[str, ...]:
    """Return a warning if the first component is likely to be usable and all together mostly noise."""
    spectrum = default_spectrum(study.dimension, study.components)
    if study.components in (1, study.dimension) or _error(study, spectrum) < MOSTLY_NOISE:
        return ()
    few = usable_components(study, spectrum)
    if few is None:
        return ()
    sentence = (
        f"with about {study.expected_records} records and epsilon = {shown(study.epsilon)} the "
        f"{study.components} components together are likely to be mostly noise unless variances differ much; "
        f"components = {few} would be usable"
    )
    return (sentence,)


def usable_components(study: Study, spectrum: AssumedSpectrum) -> int | None:
    """Return the most components, fewer than the study's, with a usable predicted error; None if none."""
    usable, too_many = 0, study.components
    while too_many - usable > 1:
        middle = (usable + too_many) // 2
        if _error(replace(study, components=middle), spectrum) <= USABLE:
            usable = middle
        else:
            too_many = middle
    return usable or None


def remedies_text(study: Study, spectrum: AssumedSpectrum) -> str:
    """Return the least records and the least epsilon with a usable predicted error; empty if none is."""
    records = least_factor(
        lambda times: _error(
            replace(study, expected_records=math.ceil(study.expected_records * times)), spectrum
        ),
        MAX_RECORDS / study.expected_records,
    )
    epsilon = least_factor(
        lambda times: _error(replace(study, epsilon=study.epsilon * times), spectrum),
        largest_epsilon(study) / study.epsilon,
    )
    found = []
    if records is not None:
        found.append(f"about {min(_rounded_up(study.expected_records * records), MAX_RECORDS)} records")
    if epsilon is not None:
        found.append(f"an epsilon of {shown(rounded_up(study.epsilon * epsilon * 1.05, 2))}")
    return " or ".join(found)


def least_factor(error: Callable[[float], float], most: float) -> float | None:
    """Return the least factor from 1 to `most` at which the falling `error` is usable."""
    low, high = 0.0, math.log(most)
    if most <= 1 or error(math.exp(high) * (1 - 1e-9)) > USABLE:
        return None
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if error(math.exp(middle)) > USABLE else (low, middle)
    return math.exp(high)


def _rounded_up(value: float) -> int:
    """Return the value rounded up to two digits."""
    unit = 10 ** max(math.floor(math.log10(value)) - 1, 0)
    return int(math.ceil(value / unit) * unit)


def _error(study: Study, spectrum: AssumedSpectrum) -> float:
    auto = study.algorithm is Algorithm.AUTO
    return _raw(study, best_candidate(study, spectrum) if auto else study.algorithm, spectrum)


def _raw(study: Study, algorithm: Algorithm, spectrum: AssumedSpectrum) -> float:
    error = _predicted(study, algorithm, spectrum)
    return math.inf if error is None else error.raw


def _predicted(study: Study, algorithm: Algorithm, spectrum: AssumedSpectrum) -> PredictedError | None:
    try:
        named = study.with_algorithm(algorithm)
        plan = plan_for(named, algorithm, federation="planner", submission="planner")
        if study.spare_attempts:
            # Searches vary epsilon, which changes the share by rounding only.
            share, total = dearest_share(replace(named, epsilon=1.0), algorithm), plan.cost.micro_rho
            micro_rho = max(plan.micro_rho, math.floor(total / (1 + study.spare_attempts * share)))
            plan = replace(plan, micro_rho=micro_rho, spare_micro_rho=total - micro_rho)
        return predict_plan_error(plan, spectrum)
    except RequestError:  # a query would cost less than the smallest cost there is
        return NOISE


def make_plan(
    study: Study,
    *,
    federation: str = "simulation",
    submission: str = "simulation",
    analyst: str = "",
    sites: Iterable[Capabilities] = (),
) -> Plan:
    """Return the plan of a study: algorithm, budget in micro-rho and atto-delta, and a digest of all.

    `auto` is resolved by public numbers. In a federation the plan has the names of the federation, the
    submission and the analyst, and the highest versions that all `sites` have which can run the study.

    Raises:
        RequestError: code `bad-study`: the algorithm cannot run this study, or the budget is too small; code
            `plan-overflow`: exact sums over `max_records` could leave 64 bits.

    >>> from eigenveil import Column, Federation, Study, make_plan
    >>> columns = tuple(Column(name=name, unit="mm", lower=-10, upper=10) for name in "abc")
    >>> study = Study(name="pilot", columns=columns, epsilon=2.0, delta=1e-6, components=1,
    ...               federation=Federation(sites=("north", "south")))
    >>> plan = make_plan(study)
    >>> plan.algorithm.value, plan.micro_rho, len(plan.digest)
    ('refined-cov', 100502, 64)"""
    algorithm = choose(study)
    versions = common_versions(algorithm, sites, least=least_plan_version(study))
    return with_pool(
        plan_for(study, algorithm, federation=federation, submission=submission, analyst=analyst, **versions)
    )
