"""Answers to questions, computed from the records.

Whatever is wrong with the records is told only after the computation that an answer takes: how long a refusal
takes tells no more than the refusal.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from eigenveil.errors import EigenveilError, RequestError
from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.site.site import Site
from eigenveil.study.study import Study
from eigenveil_client.records.records import Records
from eigenveil_client.site.policy import Policy
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.failpoints import failpoint

MOST_LOADED = 4  # studies whose rows stay in memory; a fifth one makes the oldest load again


class Answers:
    """Answers for one site. `load` reads the records for a study."""

    def __init__(self, policy: Policy, store: SiteStore, load: Callable[[Study], Records]) -> None:
        self._policy = policy
        self._store = store
        self._load = load
        self._sites: dict[str, Site] = {}
        self._cores = os.cpu_count() or 1
        self._threads = ThreadPoolExecutor(self._cores)

    def values(self, plan: Plan, asked: RoundQuery) -> IntArray:
        """Load and compute in any case, and only then refuse what the records do not allow."""
        site, problem = self._site(plan)
        values = self._compute(site, asked)
        if problem is not None:
            raise problem
        return values

    def _compute(self, site: Site, asked: RoundQuery) -> IntArray:
        with one_thread():  # its shares of the rows are the threads; more inside them only get in the way
            return site.answer(asked.query, self._threads.map, frame=asked.frame)

    def forget(self, plan: str) -> None:
        """Let the records of a study go."""
        self._sites.pop(plan, None)

    def _site(self, plan: Plan) -> tuple[Site, EigenveilError | None]:
        """The records of a study, and what is wrong with them: then they are loaded anew the next time."""
        if plan.digest in self._sites:
            return self._sites[plan.digest], None
        while len(self._sites) >= MOST_LOADED:
            self._sites.pop(next(iter(self._sites)))
        site, problem = self._loaded(plan)
        if problem is None:
            self._sites[plan.digest] = site
            failpoint("records-loaded")
        return site, problem

    def _loaded(self, plan: Plan) -> tuple[Site, EigenveilError | None]:
        """Whether there are enough is asked of the persons in the whole file, never of those that the study's
        columns and rules leave: else its analyst chose whom a refusal is about. So is how good a column is,
        by thresholds and ranges of the site's own."""
        try:
            records = self._load(plan.study)
        except RequestError as problem:
            # Rows of zeros to compute with, where the records cannot be read.
            rows = np.zeros((self._policy.minimum_records, plan.study.dimension), dtype=np.int16)
            return Site(rows, workers=self._cores), problem
        site = Site(records.rows, workers=self._cores)
        try:
            self._policy.require_enough(records.persons)
            self._policy.quality.require(records.quality)
            self._store.keep_records(plan, records)
        except RequestError as problem:
            return site, problem
        return site, None
