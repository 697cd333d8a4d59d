"""`eigenveil simulate`: splits, drop-outs, repeats, the truth, and clear refusals."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from eigenveil.simulation import split_rows
from eigenveil.study.toml import parse_study
from eigenveil_client.local.simulate import divide, with_sites
from tests.client.commands import eigenveil

STUDY = """
name = "simulated"
components = 2
algorithm = "gauss-cov"
[privacy]
epsilon = 4.0
delta = 1e-6
[federation]
sites = ["north", "south"]
quorum = 1
"""
COLUMNS = ("a", "b", "c", "d")
TWO = "".join(f'[[columns]]\nname = "{name}"\nunit = "1"\nlower = -9\nupper = 9\n' for name in "ab")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study of four columns and two sites."""
    path = tmp_path / "study.toml"
    columns = [f'[[columns]]\nname = "{name}"\nunit = "mm"\nlower = -9\nupper = 9' for name in COLUMNS]
    path.write_text("\n".join([STUDY, *columns]))
    return path


@pytest.fixture
def table() -> pa.Table:
    """600 records."""
    values = np.random.default_rng(3).normal(size=(600, 4)) * [3.0, 2.0, 0.5, 0.3]
    return pa.table({name: values[:, i] for i, name in enumerate(COLUMNS)})


@pytest.fixture
def data(tmp_path: Path, table: pa.Table) -> Path:
    """The records as CSV."""
    path = tmp_path / "records.csv"
    pacsv.write_csv(table, path)
    return path


def told(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    """Exit code and JSON answer of a simulation."""
    code = eigenveil(["simulate", *map(str, arguments), "--json"])
    return code, json.loads(capfd.readouterr().out.strip().splitlines()[-1])


def test_what_was_compared_with_the_exact_answer_is_not_private(
    unpainted: None, study: Path, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """How far a result is from the truth is a function of the records that no noise hides."""
    plain = told(capfd, study, "--data", data)[1]
    assert (plain["private"], plain["guarantee"]["epsilon"] <= 4.0) == (True, True)
    value = told(capfd, study, "--data", data, "--truth", "--out", tmp_path / "out")[1]
    written = json.loads(Path(value["document"]).read_text())
    for looked in (value, written):
        assert looked["private"] is False
        assert looked["guarantee"]["text"].startswith("NOT PRIVATE")
        assert set(looked["guarantee"]) == {"text"}
    assert "NOT PRIVATE" in Path(value["report"]).read_text()


@pytest.mark.parametrize("split", ["even", "3,2,1"])
def test_one_record_more_moves_nobody_to_another_site(split: str) -> None:
    """On top, in the middle or at the end; also where records are equal. Cut by position, one on top moves a
    record over every border."""
    rows = np.random.default_rng(1).integers(-2, 3, (400, 2)).astype(np.int16)
    wanted = with_sites(parse_study(STUDY + TWO), 3)
    before = divide(rows, wanted, split)
    for place in (0, 170, 400):
        after = divide(np.insert(rows, place, [1, -2], axis=0), wanted, split)
        grown = [Counter(map(tuple, after[name])) - Counter(map(tuple, before[name])) for name in after]
        assert sum(more.total() for more in grown) == 1
        assert sum(map(len, after.values())) == 401


def test_how_finely_records_are_stored_does_not_decide_where_they_go() -> None:
    rows = np.random.default_rng(1).integers(-2, 3, (400, 2)).astype(np.int16)
    wanted = with_sites(parse_study(STUDY + TWO), 3)
    coarse = replace(wanted, grid_steps=wanted.grid_steps // 4)
    fine, same = divide(4 * rows, wanted, "even"), divide(rows, coarse, "even")
    assert all(np.array_equal(fine[name], same[name]) for name in fine)


def test_sites_are_as_large_as_their_weights_say() -> None:
    values = np.random.default_rng(2).normal(size=(6000, 3))
    sizes = [len(part) for part in split_rows(values, {"a": 3.0, "b": 2.0, "c": 1.0}).values()]
    assert np.abs(np.array(sizes) - [3000, 2000, 1000]).max() < 6 * 6000**0.5 / 2


@pytest.mark.parametrize("split", ["even", "uneven", "5,1,2"])
def test_how_records_are_divided_changes_nothing(
    split: str, study: Path, data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = told(capfd, study, "--data", data, "--seed", 1, "--sites", 1)[1]
    many = told(capfd, study, "--data", data, "--seed", 1, "--sites", 3, "--split", split)[1]
    assert (one["n_sites"], many["n_sites"]) == (1, 3)
    assert one["result"] == many["result"]
    assert one["private"] is False


def test_a_site_may_drop_out(study: Path, data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = told(capfd, study, "--data", data, "--seed", 1)[1]["result"]["records"]
    half = told(capfd, study, "--data", data, "--seed", 1, "--drop-out", "1:south")[1]["result"]["records"]
    assert 250 < whole - half < 350


def test_the_command_line_tries_another_trust_and_loses_sites(
    study: Path, data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    study.write_text(study.read_text().replace("quorum = 1", "quorum = 2"))
    plain = told(capfd, study, "--data", data, "--seed", 1, "--sites", 4)[1]
    assert "attempts" not in plain
    secure = ["--data", data, "--seed", 1, "--sites", 4, "--trust", "secure-aggregation", "--attempts", 2]
    value = told(capfd, study, *secure, "--lost", "1:site-2", "--lost", "3.1:site-1", "--colluder", "site-4")[
        1
    ]
    assert value["attempts"] == [2, 1, 2, 1, 1, 1, 1]
    assert [one["attempt"] for one in value["seen"]] == [1, 2, 1, 1, 2, 1, 1, 1, 1]
    first, second = value["seen"][:2]
    assert (first["honest"], second["honest"]) == (["site-1", "site-3"], ["site-1", "site-3"])
    assert abs(first["values"][0]) > 2**40 > abs(second["values"][0])
    assert eigenveil(["simulate", str(study), *map(str, secure), "--lost", "1:site-2"]) == 0
    assert "attempts that failed because a site was unavailable: 1, each charged" in capfd.readouterr().out
    study.write_text(study.read_text().replace("delta = 1e-6", 'delta = 1e-6\ntrust = "secure-aggregation"'))
    assert "attempts" in told(capfd, study, "--data", data, "--seed", 1)[1]
    again = told(capfd, study, "--data", data, "--seed", 1, "--sites", 4, "--trust", "central")[1]
    assert again["result"] == plain["result"]


def test_the_last_run_is_drawn_and_its_file_looked_at_before_any_work(
    study: Path, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.svg"
    assert told(capfd, study, "--data", data, "--truth", "--plot", path)[1]["plot"] == str(path)
    drawn = path.read_text()
    assert all(word in drawn for word in ("NOT PRIVATE", "component 2", "correlation", ">d<"))
    code, value = told(capfd, study, "--data", data, "--plot", data, "--repeat", 10_000)
    assert (code, "the name must end in" in value["message"]) == (2, True)


def test_for_people(study: Path, data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert eigenveil(["simulate", str(study), "--data", str(data), "--truth"]) == 0
    out = capfd.readouterr().out
    assert "component 2: variance" in out
    assert "measured sine to the exact components" in out
    assert "NOT PRIVATE" in out
    assert "-differential privacy" not in out
    assert "warning" not in out
    assert eigenveil(["simulate", str(study), "--data", str(data)]) == 0
    assert "-differential privacy" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("extra", "code", "message"),
    [
        (["--split", "1,2,3"], 2, "write even, uneven, or 2 weights above 0"),
        (["--split", "1,-2"], 2, "weights above 0"),
        (["--split", "many"], 2, "write even, uneven"),
        (["--drop-out", "1:east"], 2, "with a round from 1 and a site of: north, south"),
        (["--drop-out", "0:south"], 2, "with a round from 1"),
        (["--drop-out", "south"], 2, "write ROUND:SITE"),
        (["--drop-out", "1:south", "--drop-out", "1:north"], 11, "nothing was charged for this round"),
        (["--lost", "1.9:south"], 2, "write ROUND:SITE or ROUND.ATTEMPT:SITE"),
        (["--lost", "1:south"], 2, "need trust"),
        (["--colluder", "south"], 2, "need trust"),
        (["--trust", "secure-aggregation"], 2, "needs at least two sites"),
        (["--colluding", "1"], 2, "leave them out"),
        (["--sites", "0"], 2, "0 is not in the range"),
        (["--repeat", "0"], 2, "0 is not in the range"),
    ],
)
def test_refusals(
    extra: list[str], code: int, message: str, study: Path, data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    got, value = told(capfd, study, "--data", data, *extra)
    assert (got, message in value["message"]) == (code, True), value


def test_who_is_missing_is_told_with_the_reason(
    study: Path, data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    study.write_text(study.read_text().replace("quorum = 1", "minimum_cohort = 250"))
    code, value = told(capfd, study, "--data", data, "--split", "2,1", "--drop-out", "1:north")
    assert (code, value["error"]) == (11, "study-failed")
    assert "(north: dropped out; south: fewer records than minimum_cohort = 250)" in value["message"]
