"""A refusal that the records decide comes after the work of an answer: the same steps in the same order.

What is fixed is the order of operations. Wall time is not: a file that cannot be read takes no time to load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eigenveil.aggregation import Contribution
from eigenveil.planning.choose import rehearse
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.engine.engine import LocalRecords
from eigenveil_client.site.state.outgoing import Outgoing
from tests.client.site.support import Stage, a_plan, work, write_records

PLAN = a_plan()


def watched(worker: SiteWorker, patch: pytest.MonkeyPatch) -> list[str]:
    """Every step that touches records or writes something down, as it happens."""
    steps: list[str] = []

    def wrap(holder: Any, name: str, step: str) -> None:
        inner: Callable[..., Any] = getattr(holder, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            steps.append(step)
            return inner(*args, **kwargs)

        patch.setattr(holder, name, noted)

    wrap(worker._engine, "load", "load")
    wrap(LocalRecords, "answer", "compute")
    wrap(Outgoing, "answer", "write")
    wrap(Outgoing, "refuse", "write")
    return steps


def too_few(stage: Stage) -> None:
    write_records(stage.records, rows=19)


def too_many(stage: Stage) -> None:
    stage.rule(maximum_records=39)


def no_column(stage: Stage) -> None:
    stage.records.write_text("a,b\n" + "1,2\n" * 40)


def quoted(stage: Stage) -> None:
    with stage.records.open("a") as file:
        file.write('1,2,"3\n1,2,3\n')


def no_file(stage: Stage) -> None:
    stage.records.unlink()


def nothing(stage: Stage) -> None:
    pass


@pytest.mark.parametrize("spoil", [nothing, too_few, too_many, no_column, quoted, no_file])
@pytest.mark.parametrize("query", rehearse(PLAN), ids=lambda query: f"round{query.round}")
def test_load_compute_write(
    stage: Stage, spoil: Callable[[Stage], None], query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(stage)
    store = stage.store()
    worker = stage.worker(store)
    steps = watched(worker, monkeypatch)
    worker.work(work(None, stage.signed(PLAN)))
    store.rounds._due[PLAN.digest] = query.round
    reply = worker.work(work(query))
    assert isinstance(reply, Contribution if spoil is nothing else Refusal)
    assert steps == ["load", "compute", "write"]
    store.close()


def test_a_refusal_that_settings_decide_touches_no_record(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.rule(columns=("a",))
    store = stage.store()
    worker = stage.worker(store)
    steps = watched(worker, monkeypatch)
    assert isinstance(worker.work(work(rehearse(PLAN)[0], stage.signed(PLAN))), Refusal)
    assert steps == ["write"]
    store.close()
