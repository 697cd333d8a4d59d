"""Answers to questions, computed from the records.

Whatever is wrong with the records is told only after the computation that an answer takes: how long a refusal
takes tells no more than the refusal.
"""

from __future__ import annotations

from collections.abc import Container

from eigenveil.errors import EigenveilError, RequestError
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil_client.site.engine.contract import Engine, Held
from eigenveil_client.site.engine.local import zeros
from eigenveil_client.site.policy import Policy
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.failpoints import failpoint

MOST_LOADED = 4  # studies whose records are held; a fifth one makes the oldest load again


class Answers:
    """Answers for one site, from the records that `engine` holds."""

    def __init__(self, policy: Policy, store: SiteStore, engine: Engine) -> None:
        self._policy = policy
        self._store = store
        self._engine = engine
        self._held: dict[str, Held] = {}

    def values(self, plan: Plan, asked: RoundQuery) -> IntArray:
        """Load and compute in any case, and only then refuse what the records do not allow."""
        held, problem = self._records(plan)
        try:
            values = held.answer(asked.query, asked.frame)
        except Exception:
            self.forget(plan.digest)  # what cannot be read any more is loaded anew the next time
            held.close()
            raise
        if problem is not None:
            held.close()
            raise problem
        return values

    def forget(self, plan: str) -> None:
        """Let the records of a study go."""
        if plan in self._held:
            self._held.pop(plan).close()

    def keep(self, plans: Container[str]) -> None:
        """Let all records go but those of these studies."""
        for plan in [held for held in self._held if held not in plans]:
            self.forget(plan)

    def _records(self, plan: Plan) -> tuple[Held, EigenveilError | None]:
        """The records of a study, and what is wrong with them: then they are loaded anew the next time."""
        if plan.digest in self._held:
            return self._held[plan.digest], None
        while len(self._held) >= MOST_LOADED:
            self.forget(next(iter(self._held)))
        held, problem = self._loaded(plan)
        if problem is None:
            self._held[plan.digest] = held
            failpoint("records-loaded")
        return held, problem

    def _loaded(self, plan: Plan) -> tuple[Held, EigenveilError | None]:
        """Whether there are enough is asked of the persons in the whole file, never of those that the study's
        columns and rules leave: else its analyst chose whom a refusal is about. So is how good a column is,
        by thresholds and ranges of the site's own."""
        try:
            held = self._engine.load(plan)
        except RequestError as problem:
            # Rows of zeros to compute with, where the records cannot be read.
            return zeros(self._policy.minimum_records, plan.study), problem
        try:
            self._policy.require_enough(held.persons)
            self._policy.quality.require(held.quality)
            self._store.keep_records(plan, held.file)
        except RequestError as problem:
            return held, problem
        return held, None
