"""The digest of a working tree, by which a table of results names the tree that it is about."""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("tests/", "benchmarks/")
TABLE, MATRIX = "docs/CHECKED.md", "docs/matrix.json"
TABLES = (TABLE, MATRIX)  # written from the results, so they are no part of what was checked


def digest(root: Path = ROOT, package: str = "") -> str:
    """Return 16 hex digits over path, executable bit and content of every file that git would keep.

    Uncommitted changes count: the digest is of the files as they are. Ignored files and the tables of
    results do not count. With a `package` of tests, such as `tests.torture`, only the files count that its
    commands can read: neither pages, nor tests and benchmarks that the package does not import."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    out = subprocess.run(listed, cwd=root, capture_output=True, check=True).stdout.decode()
    names = {name for name in out.split("\0") if name and name not in TABLES and (root / name).is_file()}
    if package:
        tests = {name for name in names if name.startswith(TESTS) and name.endswith(".py")}
        pages = {name for name in names if name.startswith("docs/") or name.endswith(".md")}
        names -= pages | (tests - _imported(root, tests, package))
    whole = hashlib.sha256()
    for name in sorted(names):
        path = root / name
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{name}\0{path.stat().st_mode & 0o100:o}\0{content}\n".encode())
    return whole.hexdigest()[:16]


def _imported(root: Path, tests: set[str], package: str) -> set[str]:
    """Return the files of a package, but for its own tests, and all files of TESTS that they import."""
    modules = {name.removesuffix(".py").replace("/", "."): name for name in tests}
    waiting = [module for module in modules if module.startswith(f"{package}.") and ".test_" not in module]
    found = set[str]()
    while waiting:
        module = waiting.pop()
        if module in modules and modules[module] not in found:
            found.add(modules[module])
            waiting += _names((root / modules[module]).read_text())
    return found


def _names(code: str) -> Iterator[str]:
    """Yield each dotted name of a module of TESTS in some code: imported, or in a string like a command."""
    yield from re.findall(r"\b(?:tests|benchmarks)(?:\.\w+)+", code)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def commit(root: Path = ROOT) -> str:
    """Return the short hash of the last commit, with a plus sign where files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout

    changed = any(line[3:] not in TABLES for line in git("status", "--porcelain").splitlines())
    return git("rev-parse", "--short=8", "HEAD").strip() + ("+" if changed else "")
