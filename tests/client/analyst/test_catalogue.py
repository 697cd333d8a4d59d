"""Dictionaries, study files and events as the analyst's commands show them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from eigenveil.dictionary.formats import TO_FILL, parse_dictionary
from eigenveil.errors import Code
from eigenveil_client.analyst.display import Display, approval_text, event_value, row_lines, row_value
from eigenveil_client.analyst.python.connect import column_table
from eigenveil_common.examples import example
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.analyst.conftest import Run
from tests.client.commands import eigenveil
from tests.support import Capture, refused

REDCAP = (
    '"Variable / Field Name","Field Type","Field Label","Choices, Calculations, OR Slider Labels",'
    '"Text Validation Type OR Show Slider Number","Text Validation Min","Text Validation Max"\n'
    'hr,text,"Heart rate, resting",,integer,20,300\nweight,text,Weight,,number,,\n'
)


@pytest.fixture
def file(tmp_path: Path, run: Run) -> Path:
    """A new study of three columns of the dictionary that is installed."""
    path = tmp_path / "three.toml"
    words = ("--dictionary", "clinical", "--sites", "north,south", "--columns", "age, bmi,sex=female")
    code, result = run("study", "new", *words, "--components", 1, "--out", path)
    assert (code, result["columns"]) == (0, ["age", "bmi", "sex=female"])
    return path


def test_a_new_study_is_planned_and_resolves_to_itself(file: Path, run: Run, tmp_path: Path) -> None:
    code, planned = run("plan", file)
    assert (code, planned["study"], planned["columns"], planned["overrides"]) == (0, "three", 3, [])
    code, whole = run("study", "resolve", file)
    assert [column["upper"] for column in whole["columns"]] == [120, 120, 1]
    assert run("study", "new", "--columns", "age", "--out", file)[0] == 9  # nothing is overwritten
    (tmp_path / "own.toml").write_text(example("dictionary").replace("upper = 120", "upper = 110", 1))
    text = file.read_text().replace('"clinical"', '"own.toml"')
    file.write_text(text)
    assert run("study", "resolve", file)[1]["columns"][0]["upper"] == 110


@pytest.mark.parametrize(("old", "new", "code", "message"), [
    ('"bmi"', '"bmmi"', 2, "did you mean 'bmi'"),
    ('"clinical"', '"clinicall"', 8, "did you mean 'clinical'"),
    ('"clinical"', '"federation"', 4, "holds no identity"),
    ('"clinical"', "3", 2, "must be a text"),
    ('"age"', '{name = "age", uper = 3}', 2, "uper"),
    ('"age"', '{name = "age", upper = "3"}', 2, "must be a number"),
    ("[federation]", "[federation", 2, "not valid TOML"),
])  # fmt: skip
def test_an_incomplete_study_file_is_refused(
    file: Path, run: Run, old: str, new: str, code: int, message: str
) -> None:
    file.write_text(file.read_text().replace(old, new, 1))
    for words in (("plan", file), ("study", "resolve", file)):
        found, result = run(*words)
        assert (found, message in result["message"]) == (code, True), result


def test_an_import_is_refused_until_a_person_has_filled_it_in(run: Run, tmp_path: Path) -> None:
    source, out = tmp_path / "redcap.csv", tmp_path / "north.toml"
    source.write_text(f"\ufeff{REDCAP}")
    code, result = run("dictionary", "import", "--redcap", source, "--name", "north", "--out", out)
    assert (code, result["columns"], result["to_fill"], result["left_out"]) == (0, 2, 1, 0)
    assert run("dictionary", "import", "--redcap", source, "--out", out)[0] == 9
    for words in (("dictionary", "check", out), ("columns", "--dictionary", out)):
        code, problem = run(*words)
        assert (code, "filled in, for 'weight'" in problem["message"]) == (2, True)
    filled = {"unit": '"kg"', "lower": "20", "upper": "300", "source": '"a scale\'s range"'}
    for key, statement in filled.items():
        out.write_text(out.read_text().replace(f'{key} = "{TO_FILL}"', f"{key} = {statement}"))
    assert run("dictionary", "check", out)[1]["columns"] == 2
    assert run("columns", "--dictionary", out)[1]["columns"][1]["unit"] == "kg"
    assert run("dictionary", "import", "--out", tmp_path / "none.toml")[0] == 2


def test_what_is_printed_as_an_example_is_a_dictionary_and_the_schema_is_one(capfd: Capture) -> None:
    assert eigenveil(["dictionary", "example"]) == 0
    assert parse_dictionary(capfd.readouterr().out).name == "clinical"
    assert eigenveil(["dictionary", "schema"]) == 0
    assert "column" in json.loads(capfd.readouterr().out)["$defs"]


def test_no_name_of_a_column_is_cut_in_a_narrow_terminal() -> None:
    known = parse_dictionary(example("dictionary"))
    Console(file=(out := io.StringIO()), width=50).print(column_table(known, None))
    cells = [line.split("│")[1].strip() for line in out.getvalue().splitlines() if "│" in line]
    assert [
        name for one in known.columns for name in (one.levels or [one.name]) if name not in "".join(cells)
    ] == []
    assert f"version {known.version}" in out.getvalue()


def event(round_state: str, **sites: str) -> pb.StudyEvent:
    return pb.StudyEvent(
        state=pb.STUDY_STATE_RUNNING, round_state=round_state, expected_rounds=3, micro_rho=100,
        sites=[pb.SiteStatus(site=site, status=status) for site, status in sites.items()],
    )  # fmt: skip


def lines(*events: pb.StudyEvent) -> list[str]:
    out = io.StringIO()
    with Display(Console(file=out, width=80), "a study", progress=True) as display:
        for one in events:
            display.take(one)
    return out.getvalue().splitlines()


def test_before_the_first_round_every_word_is_seen_and_a_stranger_s_text_moves_no_cursor() -> None:
    hour = 3_600_000
    waits = [pb.SiteStatus(site="a", status="agreed"), pb.SiteStatus(site="b", status="waiting for a person")]
    no = pb.SiteStatus(site="b", status="declined: purpose", text="[red]\x1b[2Jno\nno")
    first, second, third = (event("planned") for _ in range(3))
    first.MergeFrom(pb.StudyEvent(consent=waits, consent_ends_unix_ms=hour))
    second.MergeFrom(pb.StudyEvent(consent=[waits[0], no], starts_unix_ms=hour))
    third.MergeFrom(pb.StudyEvent(consent=[waits[0]]))
    message = "\n".join(lines(first, second, third))
    assert "until 1970-01-01 01:00 (UTC)" in message
    assert "b: waiting for a person" in message
    assert "starts after 1970-01-01 01:00 (UTC)" in message
    assert '("[red]?[2Jno?no")' in message
    assert "round 1" not in message


@pytest.mark.parametrize("time", [2**62, -(2**62), 10**15])
@pytest.mark.parametrize("shown", [lines, event_value])
def test_a_time_beyond_the_calendar_is_refused(shown: Callable[[pb.StudyEvent], Any], time: int) -> None:
    for name in ("consent_ends_unix_ms", "starts_unix_ms"):
        message = event("", a="waiting")
        message.consent.append(pb.SiteStatus(site="a", status="agreed"))
        setattr(message, name, time)
        with refused(Code.PROTOCOL, "an invalid time"):
            shown(message)


def test_figures_of_a_study_are_those_that_were_sent() -> None:
    row = pb.StudyRow(
        state=pb.STUDY_STATE_FAILED, micro_rho=400, spent_micro_rho=100, rounds=7,
        consent_ends_unix_ms=3_600_000, starts_unix_ms=7_200_000,
    )  # fmt: skip
    result, running = row_value(row), event("open", a="answered")
    assert (result["state"], result["rounds"], result["micro_rho"], result["spent_micro_rho"]) == (
        "failed", 7, 400, 100,
    )  # fmt: skip
    times = (result["consent_ends"], result["starts"])
    assert times == ("1970-01-01T01:00:00+00:00", "1970-01-01T02:00:00+00:00")
    assert "spent: 25 % of its cost" in row_lines(row).splitlines()
    running.spent_micro_rho = 20
    value = event_value(running)
    assert (value["spent_micro_rho"], value["micro_rho"], value["sites"]) == (20, 100, {"a": "answered"})
    assert "; budget 20 %; a=answered" in value["text"]


def test_approval_text_names_the_operator_first() -> None:
    query = {"sites": ["west"], "approval_seconds": 3600.0, "start_seconds": 600.0}
    stored, begun = (approval_text(query, state) for state in ("awaiting approval", "running"))
    assert stored.startswith("The coordinator's operator has to approve it first.")
    assert "west" in stored
    assert "until" not in stored
    assert begun.startswith("A person decides at west, and has until ")
    assert "The study starts 10 minutes after the last one agreed" in begun
