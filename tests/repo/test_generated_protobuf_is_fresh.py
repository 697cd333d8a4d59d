"""The committed protobuf code is what `make proto` writes, no more and no less, and the versions
it demands at run time are the ones pyproject.toml promises."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.repo.tree import GENERATED, ROOT

PROTO = ROOT / "proto"
PROTOBUF_STAMP = re.compile(r"^# Protobuf Python Version: (\S+)$", re.MULTILINE)
GRPC_STAMP = re.compile(r"^GRPC_GENERATED_VERSION = '(\S+)'$", re.MULTILINE)


def generated(root: Path) -> dict[str, str]:
    """Text of every generated file below `root`, by relative name."""
    found = (path for pattern in GENERATED for path in root.rglob(pattern))
    return {path.relative_to(root).as_posix(): path.read_text() for path in found}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("generated")
    command = [sys.executable, str(PROTO / "generate.py"), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return generated(out)


def lower_bound(package: str) -> Version:
    """The lowest version of `package` that pyproject.toml admits."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["coordinator"], *extras["site"]]
    named = [r for r in map(Requirement, lines) if r.name == package]
    bounds = [Version(s.version) for r in named for s in r.specifier if s.operator == ">="]
    return min(bounds)


def test_every_proto_has_its_four_files(fresh: dict[str, str]) -> None:
    stems = [p.relative_to(PROTO).with_suffix("").as_posix() for p in PROTO.rglob("*.proto")]
    ended_studies = [pattern.removeprefix("*") for pattern in GENERATED]
    assert sorted(fresh) == sorted(stem + ending for stem in stems for ending in ended_studies)


def test_committed_code_is_fresh(fresh: dict[str, str]) -> None:
    committed = generated(PROTO)
    differing = {n for n in fresh.keys() | committed.keys() if fresh.get(n) != committed.get(n)}
    assert differing == set(), "run `make proto` and commit what it writes"


def test_promised_versions_can_run_it(fresh: dict[str, str]) -> None:
    text = "\n".join(fresh.values())
    protobuf, grpc = PROTOBUF_STAMP.findall(text), GRPC_STAMP.findall(text)
    assert protobuf
    assert grpc
    assert lower_bound("protobuf") >= max(map(Version, protobuf))
    assert lower_bound("grpcio") >= max(map(Version, grpc))
