"""Commands that share a process say what they say alone, in their turn, and are missed when it ends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil_client.demo.processes import LOADED, Processes, command_line
from tests.support import refused

SITE = "eigenveil-site"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    logs = tmp_path / "logs"
    logs.mkdir()
    one = Processes(logs)
    yield one
    one.stop()


def make(folder: Path) -> list[str]:
    return ["init", "--dir", str(folder), "--name", "a", "--records", "r.csv", "--json"]


def test_a_command_in_a_shell_does_what_it_does_alone(processes: Processes, tmp_path: Path) -> None:
    done = subprocess.run(
        [*command_line(SITE), *make(tmp_path / "alone")], capture_output=True, check=True, text=True
    )
    result = processes.finish(
        [processes.enqueue(f"job-{i}", SITE, *make(tmp_path / "shell" / str(i))) for i in (1, 2)]
    )
    written = [Path(json.loads(done.stdout)["config"]), *(Path(value["config"]) for value in result)]
    assert len({path.read_text() for path in written}) == 1
    assert [path.parent for path in written[1:]] == [tmp_path / "shell" / str(i) for i in (1, 2)]


def test_a_command_that_fails_is_named_with_its_log_and_the_next_one_runs(
    processes: Processes, tmp_path: Path
) -> None:
    folder = tmp_path / "site"
    first, second, third = (processes.enqueue(f"job-{i}", SITE, *make(folder)) for i in range(3))
    processes.finish([first])
    with refused(Code.CONFLICT, "job-1: ", "exists already", str(second.log)):
        processes.finish([second])
    with refused(Code.CONFLICT, "job-2: "):
        processes.finish([third])
    assert first.process is third.process


def test_a_shell_that_ends_ends_the_wait(processes: Processes, tmp_path: Path) -> None:
    first = processes.enqueue("first", SITE, *make(tmp_path / "site"))
    processes.finish([first])
    first.process.kill()
    first.process.wait()
    with refused(Code.BUG, "second ended with exit code -9"):
        processes.finish([processes.enqueue("second", SITE, "example")])


def test_a_shell_that_cannot_begin_is_told_by_its_own_log(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOADED, SITE, "eigenveil_client.nowhere")
    query = processes.enqueue("first", SITE, "example")
    with refused(Code.BUG, "first ended with exit code 1", "nowhere", str(query.shell.log)):
        processes.finish([query])


def test_stopping_leaves_no_shell(processes: Processes) -> None:
    query = [processes.enqueue(program, program, "--help") for program in (SITE, "eigenveil")]
    processes.stop()
    assert [task.process.returncode is None for task in query] == [False, False]
