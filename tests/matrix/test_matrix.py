"""`make matrix` tries what it says, names what it cannot try, and keeps its table."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.everything import __main__ as everything
from tests.everything.results import GREEN, NOT_RUN
from tests.everything.rows import Row
from tests.everything.tree import MATRIX, ROOT
from tests.matrix import __main__ as command
from tests.matrix import environments
from tests.matrix.environments import ENVIRONMENTS, PYTHONS, ROWS, Environment, oldest_numpy
from tests.matrix.trial import Trial
from tests.repo.test_packaging import PROJECT
from tests.support import Patch

ROWS_HERE = (
    Row(name="tests-a", command=("bash", "-c", "echo 3 passed"), promise="a"),
    Row(name="tests-b", command=("bash", "-c", "exit 1"), promise="b", lacking=lambda: "needs Python 9"),
    Row(name="slow-a", command=("bash", "-c", "exit 1"), promise="c"),
)


def written(folder: Path, *only: str) -> list[dict[str, Any]]:
    table, build = folder / "matrix.json", folder / "build"
    command.resume(table, build / "results.json")
    everything.everything(
        command.chosen_rows(ROWS_HERE, list(only)),
        every=ROWS_HERE, build=build, table=table, written=command.text,
    )  # fmt: skip
    rows: list[dict[str, Any]] = json.loads(table.read_text())
    return rows


def test_the_table_states_what_ran_what_cannot_run_and_what_has_not(tmp_path: Path) -> None:
    rows = written(tmp_path, "tests")
    assert [row["row"] for row in rows] == [row.name for row in ROWS_HERE]
    assert [row["outcome"] for row in rows] == [GREEN, NOT_RUN, command.NOT_YET]
    assert [row.get("detail") for row in rows] == ["3 passed", "needs Python 9", None]


def test_a_committed_table_is_resumed_without_the_folder_that_it_was_written_from(tmp_path: Path) -> None:
    first = written(tmp_path, "tests-a")[0]
    (tmp_path / "build" / "results.json").unlink()
    assert written(tmp_path, "tests-a", "tests-b")[0] == first


def test_every_supported_python_is_tried_and_no_other() -> None:
    stated = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if "Python :: 3." in line]
    assert list(PYTHONS) == stated
    assert set(PYTHONS) <= set(ENVIRONMENTS)


def test_the_oldest_numpy_is_the_bound_of_the_project() -> None:
    assert oldest_numpy().replace("==", ">=") in PROJECT["project"]["dependencies"]


def test_an_absent_python_and_an_absent_user_are_named(monkeypatch: Patch) -> None:
    assert "needs Python 2.0" in Environment(name="a", python="2.0").lacking()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in ENVIRONMENTS["other-user"].lacking()


def test_a_python_that_is_named_is_preferred(monkeypatch: Patch) -> None:
    seen = {"/opt/a": ("3.12", "/opt/a"), "/opt/b": ("3.13", "/opt/b"), "python3.13": ("3.13", "/usr/b")}
    monkeypatch.setattr(environments, "probed", lambda name, other_user: seen.get(name, ("", "")))
    monkeypatch.setenv("PYTHONS", "/opt/a /opt/b")
    assert [Environment(name="a", python=version).interpreter() for version in PYTHONS] == [
        "", "/opt/a", "/opt/b",
    ]  # fmt: skip


def test_a_trial_stops_at_a_program_that_fails(tmp_path: Path) -> None:
    trial = Trial(environment=ENVIRONMENTS["no-compiler"], folder=tmp_path)
    (tmp_path / "empty").mkdir()
    assert trial.run("bash", "-c", "echo 1; echo $CC") == "false"
    with pytest.raises(SystemExit, match=r"2 failed \[exit 3\]"):
        trial.run("bash", "-c", "echo 2 failed; exit 3")


def test_a_folder_is_handed_over_but_not_what_its_links_point_to(tmp_path: Path, monkeypatch: Patch) -> None:
    changed: list[Path] = []
    monkeypatch.setattr(os, "lchown", lambda path, user, group: changed.append(path))
    monkeypatch.setattr(Environment, "user", lambda self: {"user": 1, "group": 1} if self.other_user else {})
    (tmp_path / "link").symlink_to("/usr")
    Trial(environment=ENVIRONMENTS["no-compiler"], folder=tmp_path).hand_over(tmp_path)
    assert changed == []
    Trial(environment=ENVIRONMENTS["other-user"], folder=tmp_path).hand_over(tmp_path)
    assert changed == [tmp_path, tmp_path / "link"]


def test_the_committed_table_has_every_row_in_order() -> None:
    rows = json.loads((ROOT / MATRIX).read_text())
    assert [row["row"] for row in rows] == [row.name for row in ROWS]
    assert all(row["detail"] for row in rows if row["outcome"] != command.NOT_YET)
