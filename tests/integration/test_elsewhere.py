"""An analyst's commands need nothing that Windows lacks: tried on Linux alone, see docs/LIMITS.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.stage import Stage

ROOT = Path(__file__).parents[2]
FLOW = """
import sys, eigenveil
from pathlib import Path
profile = Path(sys.argv[1])
assert all(getattr(eigenveil, name) for name in eigenveil.__all__)
with eigenveil.connect(profile) as federation:
    study = federation.study(columns=["radius", "area"], epsilon=0.3, components=1, name="elsewhere")
    print(study.plan(), study.explain(), federation.sites, federation.budget)
    run = study.submit()
    run.wait()
    assert run.result.components.shape == (1, 2)
assert "eigenveil_client.site" not in sys.modules
"""
LOCK = """
import subprocess, sys
from pathlib import Path
from eigenveil_common.concurrency import locked, try_lock
path, *other = sys.argv[1:]
def free():
    return subprocess.run([sys.executable, *other, path, "other"]).returncode == 3
if other == ["other"]:
    sys.exit(0 if try_lock(Path(path)) is None else 3)
with locked(Path(path)):
    assert not free()
assert free()
"""
COMMANDS = """
import json, sys
from eigenveil_client.entry import analyst
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    if code := analyst():
        sys.exit(code)
"""


def elsewhere(folder: Path, code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `code` where there is only what Windows has."""
    program, file = ROOT / "tests" / "integration" / "elsewhere.py", folder / "program.py"
    file.write_text(code)
    return subprocess.run(
        [sys.executable, program, file, *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_an_analysts_way_from_enrolment_to_a_result_needs_nothing_of_posix(
    published: Stage, tmp_path: Path
) -> None:
    done = elsewhere(tmp_path, FLOW, published.layout.analyst)
    assert done.returncode == 0, done.stderr
    profile = ["--profile", str(published.layout.analyst), "--json"]
    fetch = ["study", "result", "elsewhere", "--out", str(tmp_path)]
    commands = [[*words, *profile] for words in (["study", "list"], ["columns"], ["doctor"], fetch)]
    done = elsewhere(tmp_path, COMMANDS, json.dumps(commands))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["declined"] is None
    done = elsewhere(tmp_path, COMMANDS, json.dumps([["demo", "--json"]]))
    assert done.returncode
    assert "Linux or macOS" in done.stdout


@pytest.mark.parametrize("stored", ["lock", "."], ids=["a file", "its folder"])
def test_a_lock_of_windows_excludes_others_until_it_is_closed(stored: str, tmp_path: Path) -> None:
    program, file = ROOT / "tests" / "integration" / "elsewhere.py", tmp_path / "program.py"
    done = elsewhere(tmp_path, LOCK, tmp_path / stored, program, file)
    assert done.returncode == 0, done.stderr
