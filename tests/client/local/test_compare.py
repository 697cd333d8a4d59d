"""`eigenveil compare` on a file: one table, the least error first, whatever happens to single algorithms."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.algorithms import ALGORITHMS
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Trust
from eigenveil_client.local import benchmark
from eigenveil_client.local.algorithm_selection import select_algorithms, total_cost
from eigenveil_client.local.tables import ComparisonRow, ordered, seconds_text, sine_text, size_text
from tests.client.commands import eigenveil, ran
from tests.support import Capture, Patch, a_study

STUDY = """
name = "compared"
components = 2
[privacy]
epsilon = 4.0
delta = 1e-6
[records]
expected_records = 800
[federation]
sites = ["north", "south"]
"""
NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    columns = [f'[[columns]]\nname = "{name}"\nunit = "mm"\nlower = -9\nupper = 9' for name in NAMES]
    path.write_text("\n".join([STUDY, *columns]))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    values = np.random.default_rng(3).normal(size=(800, 5)) * [3.0, 2.0, 0.5, 0.3, 0.2]
    path = tmp_path / "records.csv"
    pacsv.write_csv(pa.table({name: values[:, i] for i, name in enumerate(NAMES)}), path)
    return path


def test_all_that_apply_side_by_side(study: Path, data: Path, tmp_path: Path, capfd: Capture) -> None:
    out = tmp_path / "table.csv"
    code, value = ran(capfd, "compare", study, "--data", data, "--seed", 1, "--out", out)
    assert (code, value["complete"]) == (0, True)
    rows = {row["algorithm"]: row for row in value["rows"]}
    assert set(rows) == {one.value for one in ALGORITHMS} | {"oja"}
    sines = [row["sin_angle"] for row in value["rows"] if row["sin_angle"] is not None]
    assert sines == sorted(sines)
    gauss = rows["gauss-cov"]
    assert gauss["sin_angle"] < 0.1
    assert gauss["frobenius"] < 0.3
    assert (gauss["rounds"], gauss["private"], gauss["trusted"]) == (7, True, False)
    assert gauss["bytes_per_site"] > 8 * 15
    assert rows["oja"]["private"] is False
    assert rows["oja"]["epsilon"] is None
    for row in value["rows"]:
        assert row["outcome"] or row["sin_angle"] is not None, row
    with out.open() as file:
        assert [row["algorithm"] for row in csv.DictReader(file)] == [r["algorithm"] for r in value["rows"]]


def test_for_people(study: Path, data: Path, capfd: Capture) -> None:
    select_algorithms = ["--algorithms", "gauss-cov,oja,private-oja-shuffled"]
    assert eigenveil(["compare", str(study), "--data", str(data), *select_algorithms]) == 0
    shown = capfd.readouterr()
    warned = " ".join(shown.err.split())
    assert "NOT PRIVATE, for you only" in warned
    assert "1 of 2: gauss-cov" in warned
    assert "oja (NOT PRIVATE)" in shown.out
    assert "private-oja-shuffled: private-oja-shuffled runs at one site only" in " ".join(shown.out.split())


def test_it_is_drawn_the_least_error_on_top(study: Path, data: Path, tmp_path: Path, capfd: Capture) -> None:
    path, names = tmp_path / "table.svg", "gauss-cov,refined-cov,zero"
    _, value = ran(
        capfd, "compare", study, "--data", data, "--seed", 1, "--algorithms", names, "--plot", path
    )
    select_algorithms = [row["algorithm"] for row in value["rows"] if row["sin_angle"] is not None]
    drawn = path.read_text()
    assert sorted(select_algorithms, key=lambda name: drawn.index(f">{name}<")) == select_algorithms
    refused = ran(capfd, "compare", study, "--data", data, "--plot", tmp_path / "none" / "table.svg")
    assert refused[1]["error"] == "storage"


def test_ctrl_c_shows_what_had_ended(study: Path, data: Path, capfd: Capture, monkeypatch: Patch) -> None:
    measured = benchmark.measure

    def interrupted(one: benchmark.Benchmark, algorithm: Algorithm) -> ComparisonRow:
        if algorithm is Algorithm.DP_PCA:
            raise KeyboardInterrupt
        return measured(one, algorithm)

    monkeypatch.setattr(benchmark, "measure", interrupted)
    code, value = ran(capfd, "compare", study, "--data", data, "--algorithms", "gauss-cov,dp-pca,oja")
    assert (code, value["complete"]) == (130, False)
    assert [row["algorithm"] for row in value["rows"]] == ["gauss-cov"]


@pytest.mark.parametrize(("extra", "code", "message"), [
    (["--algorithms", "gauss-cov,best"], 2, "'best' is unknown; there are: gauss-cov"),
    (["--algorithms", "private-oja-shuffled"], 2, "none of these algorithms can run this study"),
    (["--federation", "--seed", "1"], 2, "are for simulations"),
    (["--federation", "--algorithms", "oja"], 2, "'oja' is unknown"),
])  # fmt: skip
def test_refusals(extra: list[str], code: int, message: str, study: Path, data: Path, capfd: Capture) -> None:
    got, value = ran(capfd, "compare", study, "--data", data, *extra)
    assert (got, message in value["message"]) == (code, True), value


def test_compare_without_records_and_without_a_federation_is_refused(study: Path, capfd: Capture) -> None:
    code, value = ran(capfd, "compare", study)
    assert (code, "give --data FILE, or --federation" in value["message"]) == (2, True)


def test_several_algorithms_cost_the_sum() -> None:
    study = a_study()
    one = total_cost(study, [Algorithm.GAUSS_COV])
    both = total_cost(study, [Algorithm.GAUSS_COV, Algorithm.DP_PCA])
    assert both.micro_rho == 2 * one.micro_rho
    masked = replace(study, trust=Trust.SECURE_AGGREGATION, spare_attempts=2)
    tries = total_cost(masked, [Algorithm.GAUSS_COV])
    assert one.micro_rho - 3 < tries.micro_rho <= one.micro_rho  # the rounds and the pool together


def test_order_and_short_texts() -> None:
    rows = [
        ComparisonRow(algorithm="refused", outcome="why"),
        ComparisonRow(algorithm="silent", seconds=1.0),
        ComparisonRow(algorithm="worse", seconds=1.0, sin_angle=0.5),
        ComparisonRow(algorithm="better", seconds=1.0, sin_angle=0.1),
    ]
    assert [row.algorithm for row in ordered(rows)] == ["better", "worse", "silent", "refused"]
    assert [size_text(n) for n in (0, 999, 5168, 164_968, 2_000_000)] == [
        "0 B", "999 B", "5.2 kB", "165 kB", "2.0 MB",
    ]  # fmt: skip
    assert [seconds_text(s) for s in (0.017, 1.26, 61, 180)] == ["17 ms", "1.3 s", "61 s", "3 min"]
    assert [sine_text(s) for s in (0.00423, 0.3051, 0.999)] == ["0.0042", "0.31", "1"]


def test_single_records_are_not_offered_to_a_federation() -> None:
    study = a_study(sites=("north",), neighbours=Neighbours.REPLACE_ONE, expected_records=5000)
    names = {one.algorithm for one in select_algorithms(study, None).runnable}
    private = {one.algorithm for one in select_algorithms(study, None, private=True).runnable}
    assert names - private == {Algorithm.PRIVATE_OJA_SHUFFLED}
