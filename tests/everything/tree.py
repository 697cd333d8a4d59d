"""The digest of a working tree, by which a table of results names the tree that it is about."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = "docs/CHECKED.md"  # written from the results, so it is no part of what was checked


def digest(root: Path = ROOT) -> str:
    """Return 16 hex digits over path, executable bit and content of every file that git would keep.

    Uncommitted changes count: the digest is of the files as they are. Ignored files and the table of
    results do not count.
    """
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=root, capture_output=True, check=True).stdout.decode().split("\0")
    whole = hashlib.sha256()
    for name in sorted({name for name in names if name and name != TABLE}):
        path = root / name
        if path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            whole.update(f"{name}\0{path.stat().st_mode & 0o100:o}\0{content}\n".encode())
    return whole.hexdigest()[:16]


def commit(root: Path = ROOT) -> str:
    """Return the short hash of the last commit, with a plus sign where files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout

    changed = any(line[3:] != TABLE for line in git("status", "--porcelain").splitlines())
    return git("rev-parse", "--short=8", "HEAD").strip() + ("+" if changed else "")
