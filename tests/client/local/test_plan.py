"""`eigenveil plan`: a table, a recommendation, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from eigenveil.algorithms import ALGORITHMS
from tests.client.commands import eigenveil

STUDY = """
name = "planned"
components = 2
[privacy]
epsilon = 2.0
delta = 1e-6
[records]
expected_records = 4000
[federation]
sites = ["north", "south"]
"""
NAMES = tuple(f"x{i}" for i in range(10))

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study of ten columns that leaves the choice open."""
    path = tmp_path / "study.toml"
    columns = [f'[[columns]]\nname = "{name}"\nunit = "mm"\nlower = -9\nupper = 9' for name in NAMES]
    path.write_text("\n".join([STUDY, *columns]))
    return path


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """500 public records with two strong directions."""
    values = np.random.default_rng(3).normal(size=(500, 10)) * np.r_[3.0, 2.0, np.full(8, 0.3)]
    path = tmp_path / "public.csv"
    pacsv.write_csv(pa.table({name: values[:, i] for i, name in enumerate(NAMES)}), path)
    return path


def told(capfd: Capture, *arguments: object) -> tuple[int, Any]:
    """Exit code and JSON answer."""
    code = eigenveil(["plan", *map(str, arguments), "--json"])
    return code, json.loads(capfd.readouterr().out.strip().splitlines()[-1])


def test_every_algorithm_is_there_with_its_cost_or_its_refusal(study: Path, capfd: Capture) -> None:
    code, value = told(capfd, study)
    assert code == 0
    assert {row["algorithm"] for row in value["algorithms"]} == {one.value for one in ALGORITHMS}
    for row in value["algorithms"]:
        known = (row["rounds"], row["bytes_per_site"], row["seconds"])
        assert (None in known) is (row["refused"] is not None), row
    gauss = next(row for row in value["algorithms"] if row["algorithm"] == "gauss-cov")
    assert 0 < gauss["sin_angle_10"] < gauss["sin_angle"] < gauss["sin_angle_90"] <= 1
    assert value["recommended"] == "refined-cov"
    assert value["spectrum"]["source"] == "the default spectrum"


def test_a_sample_and_a_spectrum_change_what_is_predicted(study: Path, sample: Path, capfd: Capture) -> None:
    found = []
    for extra in ([], ["--sample", sample], ["--spectrum", "9,4,0.09"]):
        code, value = told(capfd, study, *extra)
        assert code == 0
        row = next(row for row in value["algorithms"] if row["algorithm"] == "gauss-cov")
        found.append(row["sin_angle"])
    default, sampled, stated = found
    assert sampled == pytest.approx(stated, rel=0.2)
    assert default > 2 * stated


def test_noise_is_said_aloud_with_what_would_do(study: Path, capfd: Capture) -> None:
    study.write_text(study.read_text().replace("expected_records = 4000", "expected_records = 60"))
    assert eigenveil(["plan", str(study)]) == 0
    out = " ".join(capfd.readouterr().out.split())
    assert "warning: the answer would be mostly noise on this spectrum; about" in out
    assert "or an epsilon of" in out


def test_errors_are_those_under_the_studys_trust(study: Path, capfd: Capture) -> None:
    plain = told(capfd, study)[1]["algorithms"]
    study.write_text(study.read_text().replace("delta = 1e-6", 'delta = 1e-6\ntrust = "secure-aggregation"'))
    masked = {row["algorithm"]: row for row in told(capfd, study)[1]["algorithms"]}
    for row in plain:
        other = masked[row["algorithm"]]
        if row["trusted"] or row["refused"] or row["sin_angle"] in (None, 1.0):
            assert other["refused"] or other["sin_angle"] == row["sin_angle"]
        else:  # of two sites one may collude: twice the variance
            assert 1.05 < other["sin_angle"] / row["sin_angle"] < 1.7, row["algorithm"]
            assert (other["rounds"], other["bytes_per_site"]) == (row["rounds"], row["bytes_per_site"])
    assert eigenveil(["plan", str(study)]) == 0
    table = capfd.readouterr().out
    assert "masked" in table
    assert "separate-cov needs exact sums" in " ".join(table.split())


def test_a_sweep_is_each_epsilon_planned_alone(study: Path, capfd: Capture) -> None:
    _, value = told(capfd, study, "--epsilon", "0.5:8:3")
    assert [row["epsilon"] for row in value["sweep"]] == pytest.approx([0.5, 2.0, 8.0])
    sines = [row["sin_angle"] for row in value["sweep"]]
    assert sines == sorted(sines, reverse=True)
    alone = next(row for row in value["algorithms"] if row["algorithm"] == value["sweep"][1]["algorithm"])
    assert value["sweep"][1]["sin_angle"] == pytest.approx(alone["sin_angle"])
    assert eigenveil(["plan", str(study), "--epsilon", "0.00001:2:2"]) == 0
    assert "no prediction at epsilon 1e-05: too small" in capfd.readouterr().out


@pytest.mark.parametrize("ending", ["png"])
def test_a_plan_is_drawn(ending: str, study: Path, tmp_path: Path, capfd: Capture) -> None:
    path = tmp_path / f"plan.{ending}"
    _, value = told(capfd, study, "--plot", path)
    assert value["plot"] == str(path)
    assert path.read_bytes().lstrip().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending])
    again = path.read_bytes()
    told(capfd, study, "--plot", path)
    assert path.read_bytes() == again


@pytest.mark.parametrize(
    ("extra", "code", "message"),
    [
        (["--spectrum", "1,2"], 2, "the largest first"),
        (["--spectrum", "many"], 2, "write numbers, largest first"),
        (["--spectrum", ",".join(["1"] * 11)], 2, "1 to 10 numbers"),
        (["--sample", "SAMPLE", "--spectrum", "2,1"], 2, "not both"),
        (["--sample", "nowhere.csv"], 3, "nowhere.csv"),
        (["--plot", "plan.jpg"], 2, "the name must end in one of .png, .svg, .pdf"),
        (["--plot", "/nowhere/plan.png"], 70, "/nowhere/plan.png"),
        (["--epsilon", "8:1"], 2, "write LOW:HIGH, such as 0.25:8"),
        (["--epsilon", "0:1"], 2, "write LOW:HIGH"),
        (["--epsilon", "nan:1"], 2, "write LOW:HIGH"),
        (["--epsilon", "1:2:1"], 2, "write LOW:HIGH"),
        (["--epsilon", "1:2:3:4"], 2, "write LOW:HIGH"),
        (["--epsilon", "1e-6:1e-5"], 2, "no error can be predicted"),
    ],
)
def test_refusals(
    extra: list[str], code: int, message: str, study: Path, sample: Path, capfd: Capture
) -> None:
    got, value = told(capfd, study, *[str(sample) if one == "SAMPLE" else one for one in extra])
    assert (got, message in value["message"]) == (code, True), value
