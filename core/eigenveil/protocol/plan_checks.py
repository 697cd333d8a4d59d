"""Checks of a plan: its algorithm can run its study, and exact sums of the study do not overflow."""

from __future__ import annotations

import math

from eigenveil.accounting.formatting import shown
from eigenveil.errors import Code, RequestError
from eigenveil.queries import Gram
from eigenveil.queries.limits import SUM_LIMIT, least_row_radius, require, row_norm_limit
from eigenveil.study.algorithm import Algorithm, CustomAlgorithm
from eigenveil.study.checks import need
from eigenveil.study.composition import MAX_MASKED_EPSILON, Composition, composition
from eigenveil.study.grid import S
from eigenveil.study.radius import stated_norm
from eigenveil.study.study import MIN_BATCH_RECORDS, Extraction, Scaling, Study


def check_algorithm(study: Study, algorithm: Algorithm | CustomAlgorithm) -> None:
    """Check that an algorithm can run a study. Raises RequestError: code `bad-study`."""
    properties, name = algorithm.properties, algorithm.value
    need(properties.private, f"{name} is not private; it is a reference for `eigenveil compare` only")
    runs = len(study.federation.sites) == 1 or not properties.one_site
    need(runs, f"{name} runs at one site only; choose another algorithm")
    finds_block = study.rank is Extraction.BLOCK or properties.deflation
    need(finds_block, f'{name} finds all components at once; leave out rank = "deflation"')
    stated_limit, least = stated_norm(study.radius), least_row_radius(study.dimension) / S
    clips_rows = properties.clips_rows or math.isinf(stated_limit)
    need(clips_rows, f"{name} clips no rows, so it takes no public norm; leave out radius")
    need(stated_limit >= least, f"radius: norm = {stated_limit:g} is below the minimum of {least:g}")
    need(
        study.scaling is not Scaling.STANDARD or not properties.exact_rows,
        f"{name} finds a subspace that contains the records exactly, and scaling by noised standard "
        'deviations would round the records out of it; use scaling = "bounds" or "none"',
    )
    need(
        study.prior is None or algorithm is Algorithm.REFINED_COV,
        f"{name} takes no prior; leave it out, or use refined-cov with a delta above 0 and no `choose`",
    )
    if study.masked:
        check_masked(study, algorithm)


def check_masked(study: Study, algorithm: Algorithm | CustomAlgorithm) -> None:
    """Check that the algorithm needs Gaussian noise on sums only: shares add up to no other [P32]. Raises
    RequestError: code `bad-study`."""
    central, name = 'use trust = "central"', algorithm.value
    exact = f"{name} needs exact sums at the coordinator, which secure aggregation hides; {central}"
    need(not algorithm.properties.trusted, exact)
    need(
        composition(study, algorithm) is Composition.GAUSSIAN,
        f"{name} at delta = {shown(study.delta)} needs noise that is not Gaussian, which secure "
        f"aggregation cannot add; choose another algorithm and a delta above 0, or {central}",
    )
    need(
        study.epsilon <= MAX_MASKED_EPSILON,
        f"under secure aggregation epsilon is at most {shown(MAX_MASKED_EPSILON)}, "
        f"not {shown(study.epsilon)}",
    )


def check_batches(study: Study, algorithm: Algorithm | CustomAlgorithm, batches: int, most: int) -> None:
    """Check that every batch has enough expected records (core/decisions/0008); sites check their own. `most`
    batches have. Raises RequestError: code `bad-study`."""
    properties = algorithm.properties
    # Algorithms on single records run on one machine, never in a federation.
    if properties.batches and not properties.single_records and batches > most:
        where = f"{batches} batches at {len(study.federation.sites)} sites"
        raise RequestError(
            Code.BAD_STUDY,
            f"{algorithm.value} would divide {study.expected_records} expected records into "
            f"{where}, fewer than {MIN_BATCH_RECORDS} each; state at most {most} batches, or use another "
            "algorithm",
        )


def check_sums(study: Study) -> None:
    """Check that exact sums do not overflow. Raises RequestError: code `plan-overflow`."""
    d, sites = study.dimension, len(study.federation.sites)
    widest = Gram(centre=[0] * d, radius=row_norm_limit(d))  # type: ignore[arg-type]
    most = (SUM_LIMIT - 1) // (widest.bound * sites)
    require(
        study.max_records <= most,
        f"max_records = {study.max_records}: sums of {d} columns over that many records of each of "
        f"{sites} sites could leave the exact range; lower max_records to at most {most}",
    )
