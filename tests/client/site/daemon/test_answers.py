"""Answers come from the records of their own study, and from zeros where no record is left."""

from __future__ import annotations

import numpy as np

from eigenveil.aggregation import Contribution
from eigenveil.planning.dry_run import rehearse
from tests.client.site.daemon.test_worker import PLAN, ask, process
from tests.client.site.support import Stage, a_plan, a_study


def test_if_dropping_leaves_nobody_the_answers_are_zeros(stage: Stage) -> None:
    stage.records.write_text("a,b,c\n" + "1,,3\n" * 40)
    with process(stage) as (store, worker):
        for number, asked in enumerate(rehearse(PLAN)):
            answer = ask(stage, worker, asked)
            assert isinstance(answer, Contribution)
            assert not answer.values.any()
            assert store.ledger.ledger.size == number + 2


def test_many_studies_at_once_keep_their_answers(stage: Stage) -> None:
    study = a_study(epsilon=0.2)
    plans = [a_plan(study, submission=str(number)) for number in range(6)]
    with process(stage) as (_, worker):
        values = []
        for round in range(2):
            for plan in plans:
                answer = ask(stage, worker, rehearse(plan)[round], plan)
                assert isinstance(answer, Contribution)
                values.append(answer.values)
        assert all(np.array_equal(values[6], other) for other in values[7:])
