"""`eigenveil compare --federation`: a study for each algorithm at a real coordinator, in one table."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from eigenveil.study.algorithm import Algorithm
from eigenveil.study.toml import parse_study
from eigenveil_client.demo.layout import public_records
from tests.client.commands import eigenveil
from tests.integration.stage import Stage

Capture = pytest.CaptureFixture[str]
ALGORITHMS = "gauss-cov,dp-pca,em-cov"


@pytest.fixture(autouse=True)
def _profile(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EIGENVEIL_PROFILE", str(stage.layout.analyst))


@pytest.fixture
def file(stage: Stage, tmp_path: Path) -> Path:
    """The stage's study, with the choice left open."""
    path = tmp_path / "study.toml"
    text = stage.text.replace('algorithm = "gauss-cov"', 'algorithm = "auto"', 1)
    assert parse_study(text).algorithm is Algorithm.AUTO
    path.write_text(text.replace('name = "breast-cancer"', 'name = "compared"', 1))
    return path


def answer_of(capfd: Capture, *arguments: object) -> tuple[int, Any]:
    code = eigenveil(["compare", *map(str, arguments), "--federation", "--json"])
    return code, json.loads(capfd.readouterr().out.strip().splitlines()[-1])


def names(capfd: Capture) -> list[str]:
    eigenveil(["study", "list", "--json"])
    return [row["name"] for row in json.loads(capfd.readouterr().out.strip().splitlines()[-1])["studies"]]


@pytest.mark.slow
def test_a_table_of_real_studies(stage: Stage, file: Path, tmp_path: Path, capfd: Capture) -> None:
    records = tmp_path / "records.csv"
    study = parse_study(file.read_text())
    with records.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow([column.name for column in study.columns])
        writer.writerows(public_records().values.tolist())
    extra = ["--yes", "--algorithms", ALGORITHMS, "--data", records]
    code, value = answer_of(capfd, file, *extra)
    assert (code, value["complete"]) == (0, True)
    rows = {row["algorithm"]: row for row in value["rows"]}
    for name in ("gauss-cov", "dp-pca"):
        row = rows[name]
        assert 0 < row["sin_angle"] <= 1
        assert 0 < row["predicted"] <= 1
        assert 0 < row["epsilon"] <= study.epsilon
        assert row["micro_rho"] > 0
        assert row["rounds"] >= 7
        assert row["bytes_per_site"] > 0
        assert row["seconds"] > 0
    assert {rows[name]["reference"] for name in ("gauss-cov", "dp-pca")} in (
        {None, "gauss-cov"},
        {None, "dp-pca"},
    )
    forbidden = rows["em-cov"]["outcome"]  # sites allow what `auto` chooses unless they say more
    assert forbidden.startswith("not submitted: ")
    assert "hospital-1: algorithms refined-cov, refined-pca, gauss-cov" in forbidden
    assert {"compared-gauss-cov", "compared-dp-pca"} <= set(names(capfd))
    assert "compared-em-cov" not in names(capfd)


def test_without_consent_nothing_is_submitted(
    file: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = names(capfd)
    code, value = answer_of(capfd, file, "--algorithms", ALGORITHMS)
    assert (code, value["error"]) == (2, "bad-argument")
    assert "3 studies out of every budget" in value["message"]
    assert "together (" in value["message"]
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: "n")
    assert eigenveil(["compare", str(file), "--federation", "--algorithms", ALGORITHMS]) == 130
    capfd.readouterr()
    assert names(capfd) == before
