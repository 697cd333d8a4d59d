"""`eigenveil simulate`: splits, drop-outs, repeats, the truth, and clear refusals."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from eigenveil import simulate
from eigenveil.reporting.verify import load_unsigned
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Federation, Trust
from eigenveil.study.toml import parse_study
from eigenveil_client.local.simulate import divide, on_cluster, with_sites
from tests.client.commands import eigenveil, ran
from tests.client.site.engine.clusters import certified, of_threads
from tests.support import Capture, a_study

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
    path = tmp_path / "study.toml"
    columns = [f'[[columns]]\nname = "{name}"\nunit = "mm"\nlower = -9\nupper = 9' for name in COLUMNS]
    path.write_text("\n".join([STUDY, *columns]))
    return path


@pytest.fixture
def table() -> pa.Table:
    values = np.random.default_rng(3).normal(size=(600, 4)) * [3.0, 2.0, 0.5, 0.3]
    return pa.table({name: values[:, i] for i, name in enumerate(COLUMNS)})


@pytest.fixture
def data(tmp_path: Path, table: pa.Table) -> Path:
    path = tmp_path / "records.csv"
    pacsv.write_csv(table, path)
    return path


def test_a_comparison_with_the_truth_is_not_private(
    unpainted: None, study: Path, data: Path, tmp_path: Path, capfd: Capture
) -> None:
    """Distance from the truth is a function of the records that no noise hides."""
    plain = ran(capfd, "simulate", study, "--data", data)[1]
    assert (plain["private"], plain["guarantee"]["epsilon"] <= 4.0) == (True, True)
    value = ran(capfd, "simulate", study, "--data", data, "--truth", "--out", tmp_path / "out")[1]
    written = load_unsigned(Path(value["release"]).read_bytes())
    assert written is not None
    for looked in (value, written.document):
        assert looked["private"] is False
        assert looked["guarantee"]["text"].startswith("NOT PRIVATE")
        assert set(looked["guarantee"]) == {"text"}
    assert "NOT PRIVATE" in Path(value["report"]).read_text()


def test_the_terminal_and_the_report_say_what_the_first_releases_decided(
    unpainted: None, study: Path, data: Path, tmp_path: Path, capfd: Capture
) -> None:
    study.write_text(study.read_text().replace('"gauss-cov"', '"auto"\nchoose = "during"'))
    assert eigenveil(["simulate", str(study), "--data", str(data), "--out", str(tmp_path / "out")]) == 0
    written = load_unsigned((tmp_path / "out" / "simulation.zip").read_bytes())
    assert written is not None
    decision = str(written.result.decision)
    assert f"decision: {decision}\n" in capfd.readouterr().out
    assert decision in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("split", ["even", "3,2,1"])
def test_one_record_more_moves_no_other_record(split: str) -> None:
    """On top, in the middle or at the end; also where records are equal. Cut by position, one on top moves a
    record over every border."""
    rows = np.random.default_rng(1).integers(-2, 3, (400, 2)).astype(np.int16)
    wanted = with_sites(parse_study(STUDY + TWO), 3)
    before = divide(rows, wanted, split)
    for place in (0, 170, 400):
        after = divide(np.insert(rows, place, [1, -2], axis=0), wanted, split)
        grown = [Counter(map(tuple, after[name])) - Counter(map(tuple, before[name])) for name in after]
        assert (sum(more.total() for more in grown), sum(map(len, after.values()))) == (1, 401)


@pytest.mark.parametrize("split", ["even", "uneven", "5,1,2"])
def test_the_split_changes_nothing(split: str, study: Path, data: Path, capfd: Capture) -> None:
    one = ran(capfd, "simulate", study, "--data", data, "--seed", 1, "--sites", 1)[1]
    many = ran(capfd, "simulate", study, "--data", data, "--seed", 1, "--sites", 3, "--split", split)[1]
    assert (one["n_sites"], many["n_sites"], one["result"]) == (1, 3, many["result"])
    assert one["private"] is False


def test_simulated_trust_and_unavailable_sites(study: Path, data: Path, capfd: Capture) -> None:
    study.write_text(study.read_text().replace("quorum = 1", "quorum = 2"))
    plain = ran(capfd, "simulate", study, "--data", data, "--seed", 1, "--sites", 4)[1]
    assert "attempts" not in plain
    secure = [
        "--data",
        data,
        "--seed",
        1,
        "--sites",
        4,
        "--trust",
        "secure-aggregation",
        "--spare-attempts",
        2,
    ]
    value = ran(
        capfd,
        "simulate",
        study,
        *secure,
        "--lost",
        "1:site-2",
        "--lost",
        "3.1:site-1",
        "--colluder",
        "site-4",
    )[1]
    assert value["attempts"] == [2, 1, 2, 1, 1, 1, 1]
    assert [one["attempt"] for one in value["seen"]] == [1, 2, 1, 1, 2, 1, 1, 1, 1]
    first, second = value["seen"][:2]
    assert (first["honest"], second["honest"]) == (["site-1", "site-3"], ["site-1", "site-3"])
    assert abs(first["values"][0]) > 2**40 > abs(second["values"][0])
    assert eigenveil(["simulate", str(study), *map(str, secure), "--lost", "1:site-2"]) == 0
    assert "attempts that failed because a site was unavailable: 1, each charged" in capfd.readouterr().out
    study.write_text(study.read_text().replace("delta = 1e-6", 'delta = 1e-6\ntrust = "secure-aggregation"'))
    assert "attempts" in ran(capfd, "simulate", study, "--data", data, "--seed", 1)[1]
    again = ran(capfd, "simulate", study, "--data", data, "--seed", 1, "--sites", 4, "--trust", "central")[1]
    assert again["result"] == plain["result"]


def test_the_last_run_is_drawn(study: Path, data: Path, tmp_path: Path, capfd: Capture) -> None:
    path = tmp_path / "run.svg"
    assert ran(capfd, "simulate", study, "--data", data, "--truth", "--plot", path)[1]["plot"] == str(path)
    drawn = path.read_text()
    assert all(word in drawn for word in ("NOT PRIVATE", "component 2", "correlation", ">d<"))
    code, value = ran(capfd, "simulate", study, "--data", data, "--plot", data, "--repeat", 10_000)
    assert (code, "the name must end in" in value["message"]) == (2, True)


@pytest.mark.parametrize(("extra", "code", "message"), [
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
])  # fmt: skip
def test_refusals(extra: list[str], code: int, message: str, study: Path, data: Path, capfd: Capture) -> None:
    got, value = ran(capfd, "simulate", study, "--data", data, *extra)
    assert (got, message in value["message"]) == (code, True), value


MANY = 70  # sites: more than are asked together


@pytest.mark.parametrize(("algorithm", "trust"), [
    (Algorithm.GAUSS_COV, Trust.CENTRAL),
    (Algorithm.GAUSS_COV, Trust.SECURE_AGGREGATION),
    pytest.param(Algorithm.SUBSPACE_EXACT, Trust.CENTRAL, marks=pytest.mark.slow),
    pytest.param(Algorithm.PRIVATE_OJA, Trust.CENTRAL, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_cluster_releases_what_one_process_does(algorithm: Algorithm, trust: Trust, tmp_path: Path) -> None:
    sites = tuple(f"site-{number}" for number in range(MANY))
    federation = Federation(sites=sites, quorum=2)
    study = a_study(sites=sites, algorithm=algorithm, federation=federation, trust=trust)
    records = {
        name: np.random.default_rng(number).normal(size=(30 + number, 3)) * [20, 10, 5] + 50
        for number, name in enumerate(sites)
    }
    gone = {1: sites[3:40]}
    here = simulate(study, records, seed=3, drop_outs=gone)
    with of_threads(certified(tmp_path / "tls")) as address, on_cluster(address) as hold:
        there = simulate(study, records, seed=3, drop_outs=gone, sum_factory=hold)
    assert [one.digest for one in there.releases] == [one.digest for one in here.releases]
    assert len(here.releases[1].present) == MANY - 37
