"""What analysts wrote is planned apart from everything else, in turns, and for so long only."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.identity import Role
from eigenveil_common.apart import ONE_THREAD
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.planning import planner, pool
from eigenveil_server.planning.pool import PlanningPool
from tests.server.rig import a_directory, made, refusal, serving, study_toml

SLOW = study_toml(columns=4000, components=10, algorithm="refined-cov")  # minutes of processor time
SMALL = study_toml()


async def ask(here: PlanningPool, analyst: str, toml: str, most_columns: int = 4096) -> object:
    words = {"study_toml": toml, "most_columns": most_columns, "directory": a_directory()}
    words |= {"submission": "draft", "analyst": analyst}
    return await here.ask(analyst, "explained", **words)


def test_a_wide_study_keeps_no_small_one_waiting_and_ends_with_its_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "LINGER_SECONDS", 0.0)

    async def scenario() -> None:
        here = PlanningPool()
        await ask(here, "ada", SMALL)  # its process has started by now
        wide = [asyncio.create_task(ask(here, name, SLOW)) for name in ("eve", "mallory")]
        await asyncio.sleep(0.1)
        assert await ask(here, "ada", SMALL)
        assert not any(wish.done() for wish in wide)
        for wish in wide:
            wish.cancel()
        await asyncio.gather(*wide, return_exceptions=True)
        assert await ask(here, "ada", SMALL + "\n" * pool.SMALL_BYTES), "the wide lane is free again"
        here.close()

    asyncio.run(scenario())


def test_what_takes_too_much_memory_is_refused_and_the_next_is_planned() -> None:
    little = "from eigenveil_server.planning import planner; planner.MEMORY_BYTES = 2**28; planner.main()"
    words = {
        "study_toml": study_toml(columns=3000, components=2900, algorithm="dp-pca"),
        "most_columns": 4096,
    }
    words |= {"directory": a_directory(), "submission": "draft", "analyst": "eve"}
    environment = {**os.environ, **ONE_THREAD}
    with subprocess.Popen(
        [sys.executable, "-c", little], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers = []
        for wish in (words, words | {"study_toml": SMALL}):
            planner.write(process.stdin, {"work": "explained", "words": wish, "seconds": 60})
            answers.append(planner.read(process.stdout))
        process.stdin.close()
    assert (answers[0]["code"], "0.25 GiB of memory" in answers[0]["why"]) == (Code.BAD_STUDY.value, True)
    assert "done" in answers[1]


def test_what_takes_too_long_is_stopped_wherever_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SMALL_SECONDS", 0)
    monkeypatch.setattr(pool, "WIDE_SECONDS", 0)
    monkeypatch.setattr(pool, "SMALL_BYTES", len(SLOW))

    async def scenario() -> RequestError:
        here = PlanningPool()
        with pytest.raises(RequestError, match="was stopped") as refused:
            await ask(here, "eve", SLOW)
        here.close()
        monkeypatch.undo()
        there = PlanningPool()
        assert await ask(there, "ada", SMALL), "another process plans on"
        there.close()
        return refused.value

    assert asyncio.run(scenario()).code is Code.BAD_STUDY


def test_nobodys_second_wish_goes_before_anothers_first(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []

    def plan(self: object, wish: dict[str, dict[str, str]]) -> dict[str, str]:
        time.sleep(0.05)
        planned.append(wish["words"]["study_toml"])
        return {"done": ""}

    monkeypatch.setattr(pool.Worker, "__init__", lambda self: None)
    monkeypatch.setattr(pool.Worker, "idle", [])
    monkeypatch.setattr(pool.Worker, "ready", classmethod(lambda cls: cls()))
    monkeypatch.setattr(pool.Worker, "ask", plan)

    async def scenario() -> None:
        here = PlanningPool()
        names = ["ada's 0", "ada's 1", "ada's 2", "bob's"]
        await asyncio.gather(*(ask(here, name.partition("'")[0], name) for name in names))
        here.close()
        pool.Worker.idle.clear()

    asyncio.run(scenario())
    assert planned == ["ada's 0", "bob's", "ada's 1", "ada's 2"]


def test_what_plans_loads_nothing_from_where_it_was_started_and_learns_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = 'import os; open("sprung", "w").write(os.environ.get("PGPASSWORD", ""))'
    (tmp_path / "resource.py").write_text(trap)
    monkeypatch.setenv("PGPASSWORD", "secret")
    monkeypatch.setattr(pool.Worker, "idle", [])
    monkeypatch.chdir(tmp_path)

    async def scenario() -> bytes:
        here = PlanningPool()
        assert await ask(here, "ada", SMALL)
        here.close()
        (worker,) = pool.Worker.idle
        said = Path(f"/proc/{worker._process.pid}/environ").read_bytes()
        pool._end_the_idle()
        return said

    assert b"PGPASSWORD" not in asyncio.run(scenario())
    assert not (tmp_path / "sprung").exists()


def test_a_process_that_was_ended_while_idle_is_nobodys_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool.Worker, "idle", [pool.Worker()])
    (idle,) = pool.Worker.idle
    idle.end()
    idle._process.wait()

    async def scenario() -> None:
        here = PlanningPool()
        assert await ask(here, "ada", SMALL)
        here.close()
        pool._end_the_idle()

    asyncio.run(scenario())


def test_a_study_is_refused_for_its_size_before_any_work(tmp_path: Path) -> None:
    async def scenario() -> tuple[EigenveilError, EigenveilError]:
        async with serving(made(tmp_path / "c", max_columns=5)) as rig:
            ada = await rig.client(Role.ANALYST, "ada")
            asked = [study_toml(columns=6), "#" * (pool.MOST_BYTES + 1)]
            wide, long = [
                await refusal(ada.stub.ExplainStudy(pb.ExplainStudyRequest(study_toml=toml)))
                for toml in asked
            ]
            return wide, long

    wide, long = asyncio.run(scenario())
    assert (wide.code, long.code) == (Code.BAD_STUDY, Code.BAD_STUDY)
    assert "max_columns" in str(wide)
    assert "KiB" in str(long)


def test_a_defect_of_planning_is_told_by_its_type_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "WORKS", {"broken": {}.pop})
    assert planner.answer("broken", {}) == {"code": Code.BUG.value, "why": "planning met TypeError"}
