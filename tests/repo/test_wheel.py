"""The same tree gives the same wheel, wherever and whenever it is built."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.repo.tree import PACKAGES, ROOT

CONFIG = Path("deploy") / "config"
PARTS = ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py")


def built(folder: Path, age: int) -> bytes:
    """A wheel that is built in a copy of the tree whose files are `age` seconds old."""
    for root in PACKAGES.values():
        unwanted = shutil.ignore_patterns("__pycache__", "*.pyc")
        shutil.copytree(root, folder / root.name, ignore=unwanted, symlinks=True)
    shutil.copytree(ROOT / CONFIG, folder / CONFIG)
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
    return wheel.read_bytes()


def test_two_builds_are_the_same_and_hold_the_explained_configuration(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "elsewhere" / "b"
    for folder in (first, second):
        folder.mkdir(parents=True)
    wheel = built(first, 0)
    assert hashlib.sha256(wheel).digest() == hashlib.sha256(built(second, 86_400)).digest()
    with zipfile.ZipFile(io.BytesIO(wheel)) as stored:
        for example in (ROOT / CONFIG).glob("*.example.toml"):
            name = example.name.replace(".example", "")
            assert stored.read(f"eigenveil_common/examples/{name}") == example.read_bytes()
        tables = [path for root in PACKAGES.values() for path in root.rglob("*.sql")]
        assert len(tables) >= 2
        for path in tables:
            top = next(root for root in PACKAGES.values() if path.is_relative_to(root))
            assert stored.read(path.relative_to(top).as_posix()) == path.read_bytes()
