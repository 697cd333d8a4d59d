"""Analysts' studies are planned apart from all else, in turns, and for a limited time."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from eigenveil.errors import Code, RequestError
from eigenveil.identity import Role
from eigenveil_common.concurrency import kill_process, start_isolated
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.planning import planner, pool
from eigenveil_server.planning.pool import PlanningPool
from eigenveil_server.rounds import study_session
from tests.server.rig import a_directory, made, refusal, serving, study_toml
from tests.support import refused

SLOW = study_toml(columns=4000, components=10, algorithm="refined-cov")  # minutes of processor time
SMALL = study_toml()
LITTLE = 2**28  # bytes of memory


async def explain(here: PlanningPool, analyst: str, toml: str, most_columns: int = 4096) -> object:
    words = {"study_toml": toml, "most_columns": most_columns, "directory": a_directory()}
    words |= {"submission": "draft", "analyst": analyst}
    return await here.ask(analyst, "explained", words)


def in_this_process(monkeypatch: pytest.MonkeyPatch, plan: Callable[..., Any], *, serves: bool) -> None:
    monkeypatch.setattr(pool.Worker, "__init__", lambda self, lane: None)
    monkeypatch.setattr(pool.Worker, "idle", [])
    monkeypatch.setattr(pool.Worker, "acquire", classmethod(lambda cls, lane: cls(lane)))
    monkeypatch.setattr(pool.Worker, "ask", plan)
    monkeypatch.setattr(pool.Worker, "serves", serves)


async def test_a_wide_study_delays_no_small_one_and_ends_with_its_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "LINGER_SECONDS", 0.0)

    here = PlanningPool(4096)
    await explain(here, "ada", SMALL)  # its process has started by now
    wide = [asyncio.create_task(explain(here, name, SLOW)) for name in ("eve", "mallory")]
    await asyncio.sleep(0.1)
    assert await explain(here, "ada", SMALL)
    assert not any(request.done() for request in wide)
    for request in wide:
        request.cancel()
    await asyncio.gather(*wide, return_exceptions=True)
    assert await explain(here, "ada", SMALL + "\n" * pool.SMALL_BYTES), "the wide lane is free again"
    here.close()


def peak(process: int) -> int:
    """The most bytes of memory that a process ever had."""
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def test_what_takes_too_much_memory_takes_no_more_than_it_may_and_the_next_is_planned() -> None:
    words = {"most_columns": 4096, "directory": a_directory(), "submission": "draft", "analyst": "eve"}
    wide = words | {"study_toml": study_toml(columns=500, components=480, algorithm="dp-pca")}
    process = start_isolated("eigenveil_server.planning.planner")
    assert process.stdin is not None
    assert process.stdout is not None
    answers = []
    for request in (wide, words | {"study_toml": SMALL}):
        query = {"work": "explained", "inputs": request, "seconds": 60, "memory": LITTLE, "nice": 0}
        study_session.write(process.stdin, query)
        answer = study_session.read(process.stdout)
        assert answer is not None
        answers.append(answer[0])
    most = peak(process.pid)
    kill_process(process)
    assert answers[0].keys() == {"memory", "resident"}
    assert "done" in answers[1]
    assert most < LITTLE
    assert answers[1]["resident"] < pool.IDLE_BYTES


async def test_what_is_too_much_for_the_small_lane_goes_on_in_the_wide_one_and_ends_with_advice_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query: list[int] = []

    def plan(self: object, request: dict[str, Any], file: bytes) -> dict[str, Any]:
        query.append(request["memory"])
        enough = request["memory"] >= int(request["inputs"]["study_toml"])
        return {"done": "planned"} if enough else {"memory": True}

    in_this_process(monkeypatch, plan, serves=False)
    small, wide = pool.SMALL_MEMORY, pool.wide_memory(2048)
    here = PlanningPool(2048)
    assert await explain(here, "ada", str(small)) == "planned"
    assert await explain(here, "bob", str(wide)) == "planned"
    advice = "choose fewer columns or components"
    with refused(Code.BAD_STUDY, f"over {wide // 2**20} MiB of memory", advice):
        await explain(here, "eve", str(wide + 1))
    assert await explain(here, "bob", "1") == "planned"
    assert await explain(here, "ada", "1") == "planned"
    now = time.monotonic() + pool.WIDE_AGAIN_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert await explain(here, "eve", "1") == "planned"
    here.close()
    assert query == [small, small, wide, small, wide, wide, small, small], "bob waits with the wide"


def test_a_process_with_much_memory_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool.Worker, "idle", [])

    async def remaining(most: int) -> int:
        monkeypatch.setattr(pool, "IDLE_BYTES", most)
        here = PlanningPool(4096)
        assert await explain(here, "ada", SMALL)
        here.close()
        return len(pool.Worker.idle)

    assert asyncio.run(remaining(pool.IDLE_BYTES)) == 1
    assert asyncio.run(remaining(2**20)) == 0, "the one that was idle has ended"


@pytest.mark.parametrize("deep", ["a" + ".a" * 50_000, "a" + ".a" * 14_000], ids=["wide", "small"])
async def test_a_deep_key_is_refused_in_next_to_no_memory(monkeypatch: pytest.MonkeyPatch, deep: str) -> None:
    """4 GiB and 13 s of the wide lane, and 949 MiB of the small one, before its bounds were held first."""
    monkeypatch.setattr(pool.Worker, "idle", [])
    here = PlanningPool(2048)
    with pytest.raises(RequestError, match="nests tables and arrays more than 16 deep"):
        await explain(here, "eve", f"{SMALL}\n{deep} = 1")
    here.close()
    (worker,) = pool.Worker.idle
    assert peak(worker._process.pid) < pool.IDLE_BYTES
    pool._end_idle_workers()
    pool.Worker.idle.clear()


async def test_what_ends_the_process_of_a_small_study_costs_the_next_small_one_no_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[pool.Worker] = []
    plain = pool.Worker.__init__

    def start(self: pool.Worker, lane: str) -> None:
        plain(self, lane)
        started.append(self)

    monkeypatch.setattr(pool.Worker, "idle", [])
    monkeypatch.setattr(pool.Worker, "__init__", start)
    here, counts = PlanningPool(4096), list[int]()
    here.warm()
    for toml in (SMALL, SMALL + "\n" * pool.SMALL_BYTES, SMALL):
        assert await explain(here, "ada", toml)
        counts.append(len(started))
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    nice = [os.getpriority(os.PRIO_PROCESS, one._process.pid) for one in started[:2]]
    assert nice == [max(mine, one) for one in (pool.SMALL_NICE, pool.WIDE_NICE)]
    monkeypatch.setattr(pool, "IDLE_BYTES", 2**20)
    for _ in range(2):
        assert await explain(here, "ada", SMALL)
        counts.append(len(started))
    here.close()
    pool._end_idle_workers()
    # One of each lane; then each small one ends its own, and finds the next process ready.
    assert counts == [1, 2, 2, 3, 4]


def test_who_goes_away_ends_no_work_but_their_own() -> None:
    """An abandoned request may be answered already, or wait behind another's."""
    exceeded = list[str]()
    lane = pool.Lane("lane", seconds=1, memory=2**20, nice=0, exceeded=exceeded.append)
    worker, request, others = mock.Mock(), dict[str, str](), dict[str, str]()
    lane._busy = others, worker
    lane._give_up("ada", request)
    assert not worker.end.mock_calls
    assert not exceeded
    lane._give_up("eve", others)
    assert worker.end.mock_calls == [mock.call()]
    assert exceeded == ["eve"], "it was not small, though nobody waits for it any more"
    lane.close()


async def test_what_plans_loads_nothing_from_where_it_was_started_and_learns_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = 'import os; open("sprung", "w").write(os.environ.get("PGPASSWORD", ""))'
    (tmp_path / "resource.py").write_text(trap)
    monkeypatch.setenv("PGPASSWORD", "secret")
    monkeypatch.setattr(pool.Worker, "idle", [])
    monkeypatch.chdir(tmp_path)
    here = PlanningPool(4096)
    assert await explain(here, "ada", SMALL)
    here.close()
    (worker,) = pool.Worker.idle
    assert b"PGPASSWORD" not in Path(f"/proc/{worker._process.pid}/environ").read_bytes()
    pool._end_idle_workers()
    assert not (tmp_path / "sprung").exists()


async def test_a_process_that_was_ended_while_idle_is_nobodys_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool.Worker, "idle", [pool.Worker("small")])
    (idle,) = pool.Worker.idle
    idle.end()
    idle._process.wait()

    here = PlanningPool(4096)
    assert await explain(here, "ada", SMALL)
    here.close()
    pool._end_idle_workers()


async def test_a_study_is_refused_for_its_size_before_any_work(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c", max_columns=5)) as rig:
        ada = await rig.client(Role.ANALYST, "ada")
        query = [study_toml(columns=6), "#" * (pool.MAX_STUDY_BYTES + 1)]
        wide, long = [
            await refusal(ada.stub.ExplainStudy(pb.ExplainStudyRequest(study_toml=toml))) for toml in query
        ]
    assert (wide.code, long.code) == (Code.BAD_STUDY, Code.BAD_STUDY)
    assert "max_columns" in str(wide)
    assert "KiB" in str(long)


def test_the_time_of_a_request_is_counted_from_its_own_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has planned for others is not ended for what they took."""
    request = {"work": "again", "inputs": {}, "memory": LITTLE, "nice": 0}
    timer = mock.Mock()
    nothing = np.empty(0, dtype=np.uint8)
    wishes = iter([(request | {"seconds": 3.0}, nothing), (request | {"seconds": 5.0}, nothing), None])
    monkeypatch.setattr(planner, "read", lambda stream: next(wishes))
    monkeypatch.setattr(planner, "write", mock.Mock())
    monkeypatch.setattr(signal, "signal", mock.Mock())
    monkeypatch.setattr(signal, "setitimer", timer)
    monkeypatch.setattr(resource, "setrlimit", mock.Mock())
    assert planner.main() == 0
    spans = [one.args for one in timer.mock_calls]
    assert spans == [(signal.ITIMER_PROF, seconds) for seconds in (3.0, 0.0, 5.0, 0.0)]


async def test_only_what_took_too_much_is_planned_with_the_wide_ones_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that dies of something else is nobody's fault."""
    monkeypatch.setattr(pool.Worker, "idle", [])
    taken = list[str]()
    plain = pool.Worker.ask

    def request_of(self: pool.Worker, request: dict[str, Any], file: bytes) -> dict[str, Any] | None:
        taken.append(self.lane)
        if len(taken) == 1:
            self.end()
        return plain(self, request, file)

    monkeypatch.setattr(pool.Worker, "ask", request_of)

    here = PlanningPool(4096)
    for _ in range(2):
        assert await explain(here, "ada", SMALL)
    monkeypatch.setattr(pool, "SMALL_BYTES", 2 * len(SLOW))
    monkeypatch.setitem(here._small._limits, "seconds", 0.01)
    monkeypatch.setitem(here._wide._limits, "seconds", 0.02)
    with pytest.raises(RequestError, match="was stopped"):
        await explain(here, "eve", SLOW)
    monkeypatch.setitem(here._wide._limits, "seconds", 60.0)
    assert await explain(here, "eve", SMALL)
    here.close()
    pool._end_idle_workers()
    assert taken == ["small", "wide", "small", "small", "wide", "wide"]
