"""`eigenveil plan`: a table, a recommendation and clear refusals; the packaged studies."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from eigenveil.errors import Code
from eigenveil.study.study import Column, Federation
from eigenveil.study.toml import SECTIONS, parse_study
from eigenveil_client.demo.layout import open_demo_folder, public_records
from tests.client.commands import eigenveil, ran
from tests.support import Capture, refused

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


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study of ten columns that leaves the choice open."""
    path = tmp_path / "study.toml"
    columns = [f'[[columns]]\nname = "{name}"\nunit = "mm"\nlower = -9\nupper = 9' for name in NAMES]
    path.write_text("\n".join([STUDY, *columns]))
    return path


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    values = np.random.default_rng(3).normal(size=(500, 10)) * np.r_[3.0, 2.0, np.full(8, 0.3)]
    path = tmp_path / "public.csv"
    pacsv.write_csv(pa.table({name: values[:, i] for i, name in enumerate(NAMES)}), path)
    return path


def test_mostly_noise_is_warned_of_with_a_remedy(study: Path, capfd: Capture) -> None:
    study.write_text(study.read_text().replace("expected_records = 4000", "expected_records = 60"))
    assert eigenveil(["plan", str(study)]) == 0
    out = " ".join(capfd.readouterr().out.split())
    assert "warning: the answer would be mostly noise on this spectrum; about" in out
    assert "or an epsilon of" in out


def test_a_sweep_is_each_epsilon_planned_alone(study: Path, capfd: Capture) -> None:
    _, value = ran(capfd, "plan", study, "--epsilon", "0.5:8:3")
    assert [row["epsilon"] for row in value["sweep"]] == pytest.approx([0.5, 2.0, 8.0])
    sines = [row["sin_angle"] for row in value["sweep"]]
    assert sines == sorted(sines, reverse=True)
    alone = next(row for row in value["algorithms"] if row["algorithm"] == value["sweep"][1]["algorithm"])
    assert value["sweep"][1]["sin_angle"] == pytest.approx(alone["sin_angle"])
    assert eigenveil(["plan", str(study), "--epsilon", "0.00001:2:2"]) == 0
    assert "no prediction at epsilon 1e-05: too small" in capfd.readouterr().out


CLINICAL = ["age", "systolic_bp", "diastolic_bp", "bmi", "glucose", "total_cholesterol"]


def test_a_plan_by_wide_bounds_warns_in_text_and_json_and_one_by_default_does_not(
    study: Path, capfd: Capture
) -> None:
    text = study.read_text().partition("[[columns]]")[0]
    head = f'dictionary = "clinical"\ncolumns = {CLINICAL!r}\n{text}'
    study.write_text(head.replace("[records]", '[records]\nscaling = "bounds"'))
    _, value = ran(capfd, "plan", study)
    (warning,) = (one for one in value["warnings"] if "widths of the bounds" in one)
    assert "age will dominate them" in warning
    assert eigenveil(["plan", str(study)]) == 0
    assert warning in " ".join(capfd.readouterr().out.split())
    study.write_text(head)
    assert not [one for one in ran(capfd, "plan", study)[1]["warnings"] if "bounds" in one]


@pytest.mark.parametrize("ending", ["png"])
def test_a_plan_is_drawn(ending: str, study: Path, tmp_path: Path, capfd: Capture) -> None:
    path = tmp_path / f"plan.{ending}"
    _, value = ran(capfd, "plan", study, "--plot", path)
    assert value["plot"] == str(path)
    assert path.read_bytes().lstrip().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending])
    again = path.read_bytes()
    ran(capfd, "plan", study, "--plot", path)
    assert path.read_bytes() == again


@pytest.mark.parametrize(("extra", "code", "message"), [
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
])  # fmt: skip
def test_refusals(
    extra: list[str], code: int, message: str, study: Path, sample: Path, capfd: Capture
) -> None:
    got, value = ran(capfd, "plan", study, *[str(sample) if one == "SAMPLE" else one for one in extra])
    assert (got, message in value["message"]) == (code, True), value


EXAMPLE = Path(__file__).parents[3] / "deploy" / "config" / "study.example.toml"


def test_the_example_names_every_key() -> None:
    text = EXAMPLE.read_text()
    parse_study(text)
    data = tomllib.loads(text)
    for section, keys in SECTIONS.items():
        assert set(keys) <= set(data[section] if section else data)
    assert set(data["federation"]) == {field.name for field in fields(Federation)}
    assert set(data["columns"][0]) == {field.name for field in fields(Column)}


def test_the_packaged_study_fits_the_public_records() -> None:
    study = parse_study(files("eigenveil_client").joinpath("studies", "breast-cancer.toml").read_text())
    values = public_records().values
    assert values.shape == (569, study.dimension) == (569, 30)
    lower = np.array([column.lower for column in study.columns])
    upper = np.array([column.upper for column in study.columns])
    beyond = (values < lower) | (values > upper)
    assert beyond.mean() < 0.001
    assert all(column.unit for column in study.columns)
    # Bounds that hug the records would have been read off them.
    assert (np.abs(values.max(axis=0) - upper) > 0).all()
    (units,) = study.warnings()  # it states scaling by bounds, as for a default there are too few records
    assert "different units" in units


def test_a_demonstration_folder_has_one_user(tmp_path: Path) -> None:
    with open_demo_folder(tmp_path / "demo") as layout, refused(Code.CONFLICT, "a demonstration runs in"):
        open_demo_folder(layout.root).__enter__()
