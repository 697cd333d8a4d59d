"""eigenveil-site as people run it: every command with --json, and the daemon as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eigenveil.planning.choose import rehearse
from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands import main
from eigenveil_client.site.commands.column_profiles import LOCAL_ONLY_NOTE, profile_columns
from eigenveil_client.site.state.store_access import OUTDATED, exclusive_lock, note_configuration
from tests.client.site.command_line import Typed, site, written
from tests.client.site.scripted import FEDERATION, Coordinator
from tests.client.site.stated import work
from tests.client.site.support import FULL_DISK, SITE, Patch, Stage, a_plan, store_identity, until
from tests.support import Capture

STUDY = """\
name = "a-study"
purpose = "see whether it works"
algorithm = "gauss-cov"
components = 1
[privacy]
epsilon = 1.0
delta = 1e-6
[federation]
sites = ["hospital-a", "hospital-b"]
"""
COLUMNS = "".join(f'[[columns]]\nname = "{n}"\nunit = "mmol/L"\nlower = 0\nupper = 10\n' for n in "abc")


@pytest.fixture
def config(stage: Stage) -> Path:
    (stage.folder / "study.toml").write_text(STUDY + COLUMNS)
    return written(stage)


def test_init_check_and_explain(config: Path) -> None:
    folder = config.parent
    made = site(None, "init", "--dir", folder / "new", "--name", "x",
        "--records", folder / "records.csv", "--minimum-records", 5, "--maximum-records", 700,
        "--person-column", "patient", "--sites-per-person", 2, "--json",
    )  # fmt: skip
    assert (made.code, made.json["name"]) == (0, "x")
    made_policy = site_config.load(folder / "new" / "site.toml").policy
    assert (made_policy.minimum_records, made_policy.maximum_records) == (5, 700)
    assert (made_policy.person_column, made_policy.sites_per_person) == ("patient", 2)
    again = site(None, "init", "--dir", folder / "new", "--name", "x", "--records", "r.csv", "--json")
    assert (again.code, again.json["error"]) == (9, "conflict")
    checked = site(config, "check", "--study", folder / "study.toml", "--json")
    assert checked.code == 0
    assert checked.json["ok"]
    assert "40 usable records" in checked.json["checks"][-1]["text"]
    result = site(config, "explain", folder / "study.toml", "--json")
    assert result.code == 0
    assert all(rule["passed"] for rule in result.json["policy"])
    assert result.json["bytes_per_site"] == sum(row["bytes"] for row in result.json["rounds"])
    shown = site(config, "explain", folder / "study.toml")
    assert "the number of usable records" in " ".join(shown.out.split())
    assert "passes" in shown.out


def test_check_names_the_absent_column_of_a_rule(config: Path, stage: Stage) -> None:
    rule = '[column.c]\nrows = "last"\nby = "gone"\n'
    config.write_text(f'person_column = "a"\n{config.read_text()}{rule}')
    ran = site(config, "check", "--json")
    assert [check["text"] for check in ran.json["checks"] if check["level"] == "fail"] == [
        "column 'gone' is not in the records. Add it"
    ]


@pytest.mark.parametrize(("expression", "level"), [("a", "ok"), ("a::DOUBLE + random()", "fail")])
def test_check_runs_a_select_twice(
    config: Path, stage: Stage, expression: str, level: str) -> None:  # fmt: skip
    sql = f"sql = 'SELECT {expression} AS a, b, c FROM records'"
    lines = [line for line in config.read_text().splitlines() if not line.startswith("records = ")]
    config.write_text("\n".join([*lines, "[records]", f'source = "{stage.records.name}"', sql, ""]))
    ran = site(config, "check", "--study", stage.folder / "study.toml", "--json")
    assert [check["level"] for check in ran.json["checks"] if check["check"] == "sql"] == [level]
    assert ran.code == (0 if level == "ok" else 3)


def test_check_counts_unreadable_cells(config: Path, stage: Stage) -> None:
    study = stage.folder / "study.toml"
    with stage.records.open("a") as file:
        file.write("1,>5,3\n1,2\n1,2,inf\n1,2,<3\n")
    ran = site(config, "check", "--study", study)
    assert ran.code == 0
    result = " ".join(ran.out.split())
    missing = "cells that cannot be read and count as missing"
    assert f"warn column 'b' {missing}: 1, such as '>5' (line 42): text instead of a number" in result
    examples = "'inf' (line 44), '<3' (line 45): an infinite number"
    assert f"warn column 'c' {missing}: 2, such as {examples}" in result
    assert "warn lines 44 lines, 43 used; 1 lost, with too few cells (line 43)" in result
    assert "40 usable records of 43" in result
    config.write_text(config.read_text() + "minimum_records = 44\n")
    ran = site(config, "check", "--study", study, "--json")
    assert ran.code == 7
    warned = [check["check"] for check in ran.json["checks"] if check["level"] == "warn"]
    assert warned == ["analysts' keys", "ledger", "lines", "column 'b'", "column 'c'"]


@pytest.mark.parametrize(("days", "code", "level"), [(-1, 6, "fail"), (0, 0, "warn"), (40, 0, "ok")])
def test_ended_or_ending_approval_is_reported(config: Path, days: int, code: int, level: str) -> None:
    with config.open("a") as file:
        file.write(f'approval_ends = "{datetime.now(UTC).date() + timedelta(days=days)}"\n')
    ran = site(config, "check")
    assert (ran.code, f"{level} approval the approval end" in " ".join(ran.out.split())) == (code, True)


STARTED: list[Process] = []


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    while STARTED:
        process = STARTED.pop()
        if process.returncode is None:  # the test failed before it ended it
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


async def start(config: Path) -> Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "eigenveil_client.site.commands.main", "serve", "--config", str(config),
        stdout=PIPE, stderr=PIPE, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    STARTED.append(process)
    assert process.stdout is not None
    message = json.loads(await process.stdout.readline())
    assert (message["event"], message["site"], message["federation"]) == ("serving", SITE, FEDERATION)
    return process


@pytest.mark.slow
async def test_process_survives_kill_9_and_stops_cleanly(config: Path, stage: Stage) -> None:
    plan = a_plan()
    queries = rehearse(plan)
    coordinator = Coordinator(work=[work(queries[0], stage.signed(plan))])
    async with stage.serving(coordinator):
        process = await start(config)
        await until(lambda: len(coordinator.contributions) == 1)
        process.kill()
        await process.wait()
        coordinator.work = [work(query) for query in queries]
        process = await start(config)
        await until(lambda: len(coordinator.contributions) == 1 + len(queries))
        process.send_signal(signal.SIGTERM)
        _, log = await process.communicate()
        assert process.returncode == 0
    assert coordinator.contributions[0] == coordinator.contributions[1]
    for words in (b"started", b"connected", b"round-answered", b"stopped"):
        assert words in log
    with closing(stage.store()) as store:
        assert store.ledger.ledger.spent.micro_rho == sum(query.priced.micro_rho for query in queries)
        assert len(store.egress.rows()) == 1 + len(queries)


async def test_serve_refuses_a_readable_key_or_a_second_process(config: Path, stage: Stage) -> None:
    with config.open("a") as file:
        file.write(f'approval_ends = "{datetime.now(UTC).date()}"\n')
    process = await start(config)
    second = await asyncio.to_thread(site, config, "serve", "--json")
    assert (second.code, second.json["error"]) == (9, "conflict")
    process.send_signal(signal.SIGINT)  # while the coordinator is away
    _, log = await process.communicate()
    assert (process.returncode, log.count(b"approval-ends-soon detail='the approval end")) == (0, 1)
    (stage.config.identity / "key.pem").chmod(0o644)
    ran = site(config, "serve", "--json")
    assert (ran.code, ran.json["error"]) == (4, "bad-config")
    other = f"eigenveil://{FEDERATION}/site/other"
    store_identity(stage.authority, stage.config.identity, "127.0.0.1:1", uri=other)
    assert "site.toml names the site" in site(config, "serve", "--json").json["message"]


@pytest.mark.slow
async def test_failed_disk_ends_the_process(config: Path, stage: Stage) -> None:
    with closing(stage.store()) as store, store.database.transaction() as change:
        change.execute(FULL_DISK)
    plan = a_plan()
    coordinator = Coordinator(work=[work(rehearse(plan)[0], stage.signed(plan))])
    async with stage.serving(coordinator):
        process = await start(config)
        _, log = await asyncio.wait_for(process.communicate(), 60)
        assert (process.returncode, b"error [storage]" in log) == (70, True)
    assert coordinator.contributions == []


def init(patch: Patch, folder: Path, typed: Typed, *words: object) -> int:
    patch.setattr(sys, "stdin", typed)
    patch.setattr(sys, "argv", ["eigenveil-site", "init", "--dir", str(folder / "new"), *map(str, words)])
    return main.main()


def test_init_repeats_its_prompt_until_the_value_is_valid(tmp_path: Path, monkeypatch: Patch) -> None:
    records = tmp_path / "records.csv"
    records.write_text("a\n1\n")
    typed = Typed(f"nowhere.csv\n{records}\nAnna!\nanna\nbob, carla\nnone\nn\n", terminal=True)
    assert init(monkeypatch, tmp_path, typed) == 0
    written = site_config.load(tmp_path / "new" / "site.toml")
    assert (written.name, written.records.source) == ("anna", records)
    assert (written.policy.analysts, typed.read()) == (("bob", "carla"), "")


@pytest.mark.parametrize(("terminal", "json"), [(False, False), (True, True)])
def test_init_without_terminal_names_what_is_missing(
    terminal: bool, json: bool, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    typed = Typed("anna\nr.csv\n\n", terminal)
    assert init(monkeypatch, tmp_path, typed, "--name", "anna", *(["--json"] if json else [])) == 2
    message = capsys.readouterr().err
    assert ("--records" in message, "--name" in message, typed.tell()) == (True, False, 0)
    assert not (tmp_path / "new").exists()


HEIGHTS = [150 + n % 40 for n in range(60)]


def odd(stage: Stage, header: str, cells: list[object], more: str = "") -> str:
    stage.records.write_text("\n".join([f'"{header}"', *(f'"{cell}"' for cell in cells)]) + "\n")
    (found,) = profile_columns(site_config.load(written(stage, more)))
    return "; ".join(found.odd)


@pytest.mark.parametrize(("header", "cells", "message"), [
    ("body_height", HEIGHTS, ""),
    ("body_height", [one / 100 for one in HEIGHTS], "looks like another unit"),
    ("body_height", [*HEIGHTS, *[-9] * 7], "looks like a code for a missing value: -9 (7 persons)"),
    ("anything", [*HEIGHTS, *[9999] * 7], "looks like a code for a missing value: 9999 (7 persons)"),
    ("anything", [*HEIGHTS, *range(990, 1010)], ""),  # far, but nobody shares a value
    ("anything", [7] * 30, "is constant"),
    ("anything", ["north", "south"] * 30, "has no values"),
    ("anything", [*HEIGHTS, "x"], "1 persons have cells that cannot be read"),
    ("body_height [m]", [one / 100 for one in HEIGHTS], "is in m, and in cm in the dictionary"),
])  # fmt: skip
def test_odd_column_is_described(stage: Stage, header: str, cells: list[object], message: str) -> None:
    found = odd(stage, header, cells)
    assert message in found
    assert bool(message) == bool(found)


def test_only_allowed_columns_and_no_person_are_shown(stage: Stage) -> None:
    rows = [f"p{n},{one},{n % 5}" for n, one in enumerate(HEIGHTS)]
    stage.records.write_text("\n".join(["patient,body_height,secret", *rows]) + "\n")
    path = written(stage, 'person_column = "patient"\ncolumns = ["body_height"]\n')
    assert [one.seen.name for one in profile_columns(site_config.load(path))] == ["body_height"]
    result = site(path, "check").out
    assert LOCAL_ONLY_NOTE in " ".join(result.split())
    assert "p7" not in result


def test_a_dictionary_that_is_not_there_fails_the_check(stage: Stage) -> None:
    ran = site(written(stage, 'dictionary = "nowhere.toml"\n'), "check", "--json")
    (failed,) = [row for row in ran.json["checks"] if row["level"] == "fail"]
    assert Path("nowhere.toml").name in failed["text"]
    assert ran.code == 4


def test_a_daemon_with_an_older_configuration_is_named_where_people_decide(stage: Stage) -> None:
    path = written(stage)
    old = site_config.load(path)
    commands = (("map", "--json"), ("approve", "0123456789ab", "--yes"))
    with exclusive_lock(old.state) as lock:
        note_configuration(lock, old)
        for text, outdated in (("", False), ("max_missing = 0.4\n", True)):
            written(stage, text)
            assert [OUTDATED in site(path, *words).err for words in commands] == [outdated] * 2
            rows = site(path, "check", "--json").json["checks"]
            assert [row["level"] for row in rows if row["check"] == "daemon"] == ["warn"] * outdated
    assert OUTDATED not in site(path, "map", "--json").err, "it runs no more"
