"""A plan that would ask without end is refused by whoever rehearses it, before it is agreed to."""

from __future__ import annotations

import pytest

from eigenveil.errors import Code
from eigenveil.planning import dry_run
from eigenveil.planning.dry_run import rehearse
from eigenveil.study.algorithm import Algorithm
from tests.support import a_plan, refused

PLAN = a_plan(algorithm=Algorithm.PRIVATE_OJA, batches=30, epsilon=5.0)


@pytest.mark.parametrize("limit", ["MAX_ROUNDS", "MAX_NUMBERS"])
def test_more_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    queries = rehearse(PLAN)
    asked = len(queries) if limit == "MAX_ROUNDS" else sum(query.query.length for query in queries)
    monkeypatch.setattr(dry_run, limit, asked)
    assert len(rehearse(PLAN)) == len(queries)
    monkeypatch.setattr(dry_run, limit, asked - 1)
    with refused(Code.BAD_STUDY, "fewer batches"):
        rehearse(PLAN)
