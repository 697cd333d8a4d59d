"""The same tree gives the same wheel, wherever and whenever it is built."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.repo.tree import PACKAGES, ROOT

PARTS = ("pyproject.toml", "README.md", "LICENSE")


def built(folder: Path, age: int) -> str:
    """The digest of a wheel that is built in a copy of the tree whose files are `age` seconds old."""
    for root in PACKAGES.values():
        shutil.copytree(root, folder / root.name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for name in PARTS:
        shutil.copy(ROOT / name, folder / name)
    for path in folder.rglob("*"):
        then = path.stat().st_mtime - age
        os.utime(path, (then, then))
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_two_builds_have_one_digest(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "elsewhere" / "b"
    for folder in (first, second):
        folder.mkdir(parents=True)
    assert built(first, 0) == built(second, 86_400)
