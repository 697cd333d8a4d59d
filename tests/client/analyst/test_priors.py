"""`prior` in a study file: read beside it, sent as axes and variances, refused before anything is planned."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil import parse_study, simulate
from eigenveil.reporting.document import signed_release
from eigenveil.study.prior import PriorSource
from eigenveil_client.analyst.federation import print_overrides, read_study
from tests.client.analyst.conftest import Run
from tests.support import Capture

STUDY = """
name = "small"
components = 1
prior = "known.csv"
privacy = {epsilon = 1.0, delta = 1e-6}
federation = {sites = ["north", "south"]}
columns = [
    {name = "age", unit = "year", lower = 0, upper = 120},
    {name = "weight", unit = "kg", lower = 20, upper = 250},
    {name = "height", unit = "cm", lower = 50, upper = 250},
]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path, generator = tmp_path / "study.toml", np.random.default_rng(0)
    rows = np.column_stack([generator.uniform(20, 80, 30), generator.uniform(50, 90, 30)])
    lines = [f"{age:.0f},{weight:.0f},{100 + weight:.0f}" for age, weight in rows.tolist()]
    (tmp_path / "known.csv").write_text("\n".join(["age,weight,height", *lines]))
    path.write_text(STUDY)
    return path


def test_a_study_is_sent_with_what_its_file_gives_and_without_rows(file: Path, run: Run) -> None:
    draft = read_study(file)
    prior = parse_study(draft.text).prior
    assert prior is not None
    assert prior.source is PriorSource.ROWS
    assert "known.csv" not in draft.text
    code, planned = run("plan", file)
    assert (code, planned["study"]) == (0, "small")
    code, whole = run("study", "resolve", file)
    assert whole["prior"]["sha256"] == prior.sha256
    again = file.with_name("whole.toml")
    again.write_text(draft.text)
    assert parse_study(read_study(again).text).prior == prior


def test_a_wrong_prior_is_refused_with_its_file_and_line(file: Path, run: Run) -> None:
    known = file.with_name("known.csv")
    known.write_text(known.read_text() + "\n40,300,180\n")
    for words in (("plan", file), ("study", "resolve", file)):
        code, value = run(*words)
        assert code == 2
        assert "known.csv: prior: line 32: weight = 300" in json.dumps(value)
    known.unlink()
    assert run("plan", file)[0] != 0


def test_a_release_of_a_signer_whom_no_profile_knows_is_used_with_a_warning(
    file: Path, run: Run, capfd: Capture
) -> None:
    file.write_text(STUDY.replace('prior = "known.csv"\n', ""))
    rows = np.random.default_rng(1).uniform((20, 50, 150), (80, 90, 190), (200, 3))
    made = simulate(parse_study(file.read_text()), {"north": rows[:100], "south": rows[100:]}, seed=0)
    key = Ed25519PrivateKey.generate()
    data = signed_release(
        made.document, made.result, sign=key.sign, public_key=key.public_key().public_bytes_raw()
    )
    file.with_name("release.zip").write_bytes(data)
    file.write_text(STUDY.replace("known.csv", "release.zip"))
    print_overrides(read_study(file))
    assert "which no profile here knows" in capfd.readouterr().err
