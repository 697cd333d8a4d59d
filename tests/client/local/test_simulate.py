"""`eigenveil simulate`: splits, repeats, the truth, and clear refusals."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from eigenveil.study.toml import parse_study
from eigenveil_client.local.simulate import divide, with_sites
from tests.client.commands import ran
from tests.support import Capture

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
    written = json.loads(Path(value["document"]).read_text())
    for looked in (value, written):
        assert looked["private"] is False
        assert looked["guarantee"]["text"].startswith("NOT PRIVATE")
        assert set(looked["guarantee"]) == {"text"}
    assert "NOT PRIVATE" in Path(value["report"]).read_text()


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


def test_masked_study_runs_on_one_file(study: Path, data: Path, capfd: Capture) -> None:
    masked = study.read_text().replace("delta = 1e-6", 'delta = 1e-6\ntrust = "secure-aggregation"')
    study.write_text(masked.replace("quorum = 1", "quorum = 2"))
    code, value = ran(capfd, "simulate", study, "--data", data, "--seed", 1)
    assert (code, value["rounds"], value["result"]["declined"]) == (0, 7, None)


@pytest.mark.parametrize(("extra", "code", "message"), [
    (["--split", "1,2,3"], 2, "write even, uneven, or 2 weights above 0"),
    (["--split", "1,-2"], 2, "weights above 0"),
    (["--split", "many"], 2, "write even, uneven"),
    (["--sites", "0"], 2, "0 is not in the range"),
    (["--repeat", "0"], 2, "0 is not in the range"),
])  # fmt: skip
def test_refusals(extra: list[str], code: int, message: str, study: Path, data: Path, capfd: Capture) -> None:
    got, value = ran(capfd, "simulate", study, "--data", data, *extra)
    assert (got, message in value["message"]) == (code, True), value
