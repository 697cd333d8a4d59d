"""Dictionaries and study files without a federation: by the one that is installed, a file, or an import."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eigenveil.dictionary.formats import TO_FILL, parse_dictionary
from eigenveil.study.toml import parse_study
from eigenveil_common.examples import example
from tests.client.commands import eigenveil

Capture = pytest.CaptureFixture[str]
Run = Callable[..., tuple[int, Any]]
REDCAP = (
    '"Variable / Field Name","Field Type","Field Label","Choices, Calculations, OR Slider Labels",'
    '"Text Validation Type OR Show Slider Number","Text Validation Min","Text Validation Max"\n'
    'hr,text,"Heart rate, resting",,integer,20,300\nweight,text,Weight,,number,,\n'
)


@pytest.fixture
def run(capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """`eigenveil WORDS --json` of somebody who is enrolled nowhere: the exit code and what was said."""
    monkeypatch.setenv("EIGENVEIL_PROFILE", str(tmp_path / "nobody"))

    def one(*words: object) -> tuple[int, Any]:
        code = eigenveil([*map(str, words), "--json"])
        return code, json.loads(capfd.readouterr().out.strip().splitlines()[-1])

    return one


@pytest.fixture
def file(tmp_path: Path, run: Run) -> Path:
    """A new study of three columns of the dictionary that is installed."""
    path = tmp_path / "three.toml"
    words = ("--dictionary", "clinical", "--sites", "north,south", "--columns", "age, bmi,sex=female")
    code, result = run("study", "new", *words, "--components", 1, "--out", path)
    assert (code, result["columns"]) == (0, ["age", "bmi", "sex=female"])
    return path


def test_a_new_study_is_planned_and_its_whole_text_is_the_same_study(
    file: Path, run: Run, tmp_path: Path
) -> None:
    code, planned = run("plan", file)
    assert (code, planned["study"], planned["columns"], planned["overrides"]) == (0, "three", 3, [])
    code, whole = run("study", "resolve", file)
    assert [column["upper"] for column in whole["columns"]] == [120, 120, 1]
    assert run("study", "new", "--columns", "age", "--out", file)[0] == 9  # nothing is overwritten
    (tmp_path / "own.toml").write_text(example("dictionary").replace("upper = 120", "upper = 110", 1))
    text = file.read_text().replace('"clinical"', '"own.toml"')
    file.write_text(text)
    assert run("study", "resolve", file)[1]["columns"][0]["upper"] == 110


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ('"bmi"', '"bmmi"', 2, "did you mean 'bmi'"),
        ('"clinical"', '"clinicall"', 8, "did you mean 'clinical'"),
        ('"clinical"', '"federation"', 4, "holds no identity"),
        ('"clinical"', "3", 2, "must be a text"),
        ('"age"', '{name = "age", uper = 3}', 2, "uper"),
        ('"age"', '{name = "age", upper = "3"}', 2, "must be a number"),
        ("[federation]", "[federation", 2, "not valid TOML"),
    ],
)
def test_a_study_file_that_cannot_be_made_whole_says_why(
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


def test_the_text_for_people_is_a_study_as_well(file: Path, capfd: Capture) -> None:
    """Also where an override is told beside it."""
    file.write_text(file.read_text().replace('"age"', '{name = "age", upper = 100}'))
    assert eigenveil(["study", "resolve", str(file)]) == 0
    statement = capfd.readouterr()
    assert parse_study(statement.out).columns[0].upper == 100
    assert "override: age: bounds 0 to 100, in the dictionary 0 to 120" in statement.err
