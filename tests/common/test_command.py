"""Messages of every command line about a library that is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.repo.tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ANALYST = "eigenveil_client.cli"
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def without(library: str, code: str) -> subprocess.CompletedProcess[str]:
    start = f"import sys; sys.modules[{library!r}] = None; {code}"
    return subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("library", "distribution", "module", "words", "extra"),
    [
        ("pyarrow", "pyarrow", ANALYST, "simulate deploy/config/study.example.toml --data x.csv", "analyst"),
        ("matplotlib", "matplotlib", ANALYST, "report release.json", "analyst"),
        ("grpc", "grpcio", ANALYST, "study list", "analyst"),
        ("grpc", "grpcio", "eigenveil_client.site.commands.main", "enrol --config s --join j", "site"),
        ("grpc", "grpcio", ANALYST, "demo --out {new}", "analyst,coordinator,site"),
        ("apsw", "apsw", "eigenveil_server.cli", "init --dir {new} --federation a", "coordinator"),
    ],
)  # fmt: skip
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    library: str, distribution: str, module: str, words: str, extra: str, tmp_path: Path
) -> None:
    argv = ["program", *words.format(new=f"{tmp_path}/new").split(), "--json"]
    done = without(library, f"sys.argv = {argv}; from {module} import main; sys.exit(main())")
    assert done.returncode == 4, done.stderr
    message = json.loads(done.stdout)["message"]
    assert library in message
    assert f"pip install 'eigenveil[{extra}]'" in message
    assert all(distribution in {Requirement(line).name for line in EXTRAS[one]} for one in extra.split(","))


def test_a_module_of_ours_that_is_not_there_is_a_bug_of_ours() -> None:
    argv = ["program", "study", "list", "--json"]
    code = f"sys.argv = {argv}; from eigenveil_client.cli import main; sys.exit(main())"
    assert without("eigenveil_client.analyst.coordinator", code).returncode == 71


def test_only_estimators_need_scikit_learn() -> None:
    assert without("sklearn", "import eigenveil; eigenveil.simulate, eigenveil.explain").returncode == 0
    done = without("sklearn", "from eigenveil import PrivatePCA")
    assert done.stderr.splitlines()[-1].endswith("pip install 'eigenveil[estimators]'")
