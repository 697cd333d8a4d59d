"""The house: folders that can be read, contracts that see what they are there for, pages that are true."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.scripts import script
from tests.repo.tree import FOLDERS, PACKAGES, ROOT, is_generated, shown

ALLOWED = range(2, 14 + 1)  # parts of a folder: modules, sub-packages and sources of another language
README_LINES = 15
SECTIONS = ("core", "common", "server", "client", "proto")
# Each planted import, and what `lint-imports` must say of it.
FORBIDDEN = [
    ("eigenveil_common.files", "eigenveil_server.process"),
    ("eigenveil.identity", "eigenveil_common.files"),
    ("eigenveil_client.cli", "eigenveil_server.process"),
    ("eigenveil_server.process", "eigenveil_client.cli"),
    ("eigenveil_proto", "eigenveil.errors"),
    *(
        ("eigenveil.identity", name)
        for name in ("threading", "concurrent.futures", "time", "random", "logging")
    ),
    *(
        (f"eigenveil.{importer}", f"eigenveil.{name}")
        for importer, names in {
            "algorithms.papers.covariance": (
                "site.rows", "noise.haar", "mechanisms.outcome", "barrier", "aggregation",
                "accounting.ledger",
            ),
            "site.kernels.clipping": (
                "noise.haar", "mechanisms.outcome", "barrier", "algorithms.covariance.zero",
                "planning.choose",
            ),
            "derived.covariance": (
                "site.rows", "noise.haar", "mechanisms.outcome", "barrier", "aggregation", "simulation",
            ),
        }.items()
        for name in names
    ),
    *(
        ("eigenveil_client.site.policy", f"eigenveil_client.{name}")
        for name in ("analyst.client", "local.plan", "demo.demo")
    ),
    ("eigenveil_client.analyst.client", "eigenveil_client.site.policy"),
    ("eigenveil_client.records.records", "sqlite3"),
    ("eigenveil.identity", "opendp"),
]  # fmt: skip  # fmt: skip
CIRCLES = [  # of folders, of files
    ("eigenveil.numerics.linalg", "eigenveil.study.study", "-> .study"),
    ("eigenveil.site.kernels.clipping", "eigenveil.site.site", "-> .site"),
]


def parts(folder: Path) -> list[str]:
    """Modules, sub-packages and C sources of one folder of a package, its `__init__` excluded."""
    modules = [p.stem for p in folder.glob("*.py") if p.name != "__init__.py" and not is_generated(p)]
    packages = [p.parent.name for p in folder.glob("*/__init__.py")]
    return sorted([*modules, *packages, *(p.name for p in folder.glob("*.c"))])


def test_no_folder_of_the_product_is_empty_or_full() -> None:
    """But for a package's top, and folders that hold nothing but folders, data or generated code."""
    inside = {
        shown(folder): parts(folder)
        for name, home in PACKAGES.items()
        for folder in sorted(p.parent for p in (home / name).rglob("__init__.py"))
        if folder != home / name
    }
    assert {folder: names for folder, names in inside.items() if names and len(names) not in ALLOWED} == {}


def planted(folder: Path, pairs: list[tuple[str, str]]) -> str:
    """Output of `lint-imports` on a copy of the tree with these imports added."""
    for name in SECTIONS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.md"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for importer, imported in pairs:
        path = folder / PACKAGES[importer.split(".")[0]].name / Path(*importer.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        path.write_text(f"{path.read_text()}\nimport {imported}\n")
    paths = os.pathsep.join(str(folder / name) for name in SECTIONS)
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        cwd=folder, env=os.environ | {"PYTHONPATH": paths, "COLUMNS": "1000"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.stdout


def parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def test_an_import_in_any_forbidden_direction_is_caught(tmp_path: Path) -> None:
    message = planted(tmp_path, FORBIDDEN)
    result = set(re.findall(r"([\w.]+) is not allowed to import ([\w.]+)", message))
    missed = [
        (one, other)
        for one, other in FORBIDDEN
        if not any((a, b) in result for a in parents(one) for b in parents(other))
    ]
    assert missed == []


@pytest.mark.parametrize(("importer", "imported", "arrow"), CIRCLES)
def test_a_circle_of_folders_or_of_files_is_caught(
    importer: str, imported: str, arrow: str, tmp_path: Path
) -> None:
    message = planted(tmp_path, [(importer, imported)])
    assert "No cycles are allowed in" in message
    assert arrow in message


@pytest.mark.parametrize("name", FOLDERS)
def test_every_top_folder_has_a_short_readme(name: str) -> None:
    lines = (ROOT / name / "README.md").read_text().splitlines()
    assert len(lines) <= README_LINES
    assert any("mport" in line for line in lines) or name in ("deploy", "docs")


def test_pictures_and_links_are_of_today() -> None:
    """`make docs` mends it."""
    made = script("refresh")
    assert made.house() == made.HOUSE.read_text()
    assert made.tour() == made.TOUR.read_text()
    assert made.draw_parties.picture() == made.draw_parties.PICTURE.read_text()
    assert len(made.LINK.findall(made.TOUR.read_text())) > 10


def test_a_link_to_a_symbol_is_mended_if_it_moved_and_refused_if_it_is_gone() -> None:
    core = ROOT / "core" / "eigenveil"
    assert script("refresh").file_of("Session.feed", core / "barrier.py") == core / "session.py"
    with pytest.raises(LookupError, match=r"Session\.fed"):
        script("refresh").file_of("Session.fed", core / "session.py")


def test_the_files_that_a_change_touches_exist() -> None:
    named = re.findall(
        r"`((?:core|common|server|client|proto|tests|docs|deploy)/[\w./-]+)`",
        (ROOT / "CONTRIBUTING.md").read_text(),
    )
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []
