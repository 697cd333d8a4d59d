"""pyproject.toml, the changelog, the lock and the tree say the same."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from eigenveil import __version__
from tests.repo.tree import PACKAGES, ROOT

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)[^\n]*\\\n((?: +--hash=[^\n]+\n)+)", re.MULTILINE)
PINNED_NAME = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)", re.MULTILINE)
RELEASED = re.compile(r"^## \[(\d+\.\d+\.\d+(?:rc\d+)?)\] - \d{4}-\d{2}-\d{2}$", re.MULTILINE)
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = {path.name: path.read_text() for path in sorted((ROOT / "requirements").glob("*.txt"))}
LOCK = LOCKS["lock.txt"]
# What each role's list is made for.
ROLES = {
    "analyst.txt": {"analyst"},
    "coordinator.txt": {"coordinator", "postgres"},
    "estimators.txt": {"estimators"},
    "lock.txt": {"dev"},
    "runtime.txt": {"analyst", "coordinator", "postgres", "site"},
    "site-dask.txt": {"site", "dask"},
    "site-genotypes.txt": {"site", "genotypes"},
    "site-sources.txt": {"site", "sources"},
    "site.txt": {"site"},
}
# What draws noise for tests, learns and plots: hundreds of megabytes that no daemon runs with.
UNWANTED = {"matplotlib", "opendp", "pandas", "pytest", "scikit-learn", "scipy"}


def direct_dependencies() -> list[Requirement]:
    """Everything pyproject.toml names: run time, extras and what builds the package."""
    project = PROJECT["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    lines = [*project["dependencies"], *extras, *PROJECT["build-system"]["requires"]]
    return [r for r in map(Requirement, lines) if r.name != project["name"]]


def pins(lock: str) -> dict[str, str]:
    """Version of each package that is pinned with at least one hash."""
    return {canonicalize_name(name): version for name, version, _ in PIN.findall(lock)}


def unlocked(requirements: list[Requirement], lock: str) -> list[str]:
    """Requirements without a hashed pin that satisfies them."""
    stored = pins(lock)
    names = [(canonicalize_name(r.name), r) for r in requirements]
    return [str(r) for name, r in names if name not in stored or stored[name] not in r.specifier]


def test_a_hole_in_the_lock_is_found() -> None:
    lock = "a==1.2 ; python_version < '4' \\\n    --hash=sha256:0\nb==1.0\n"
    wanted = [Requirement(line) for line in ("a>=1", "A>=2", "b", "c")]
    assert unlocked(wanted, lock) == ["A>=2", "b", "c"]


def test_the_lock_holds_every_direct_dependency() -> None:
    assert unlocked(direct_dependencies(), LOCK) == []


@pytest.mark.parametrize("name", LOCKS)
def test_every_line_of_a_lock_is_hashed_and_pins_what_was_tested(name: str) -> None:
    stored = pins(LOCKS[name])
    assert {canonicalize_name(found) for found in PINNED_NAME.findall(LOCKS[name])} == set(stored)
    assert stored.items() <= pins(LOCK).items()


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_index_and_shows_its_command(name: str) -> None:
    lines = LOCKS[name].splitlines()
    options = [line for line in lines if line.lstrip().startswith(("-", "--"))]
    assert [line for line in options if not line.startswith("    --hash=sha256:")] == []
    assert [line for line in lines if "://" in line or " @ " in line] == []
    header = "\n".join(line for line in lines[:5] if line.startswith("#"))
    assert "uv pip compile" in header
    assert "--generate-hashes" in header


def test_every_extra_has_a_list_that_make_lock_writes() -> None:
    extras = {
        name: set(re.findall(r" --extra (\S+)", text.split("\n", 2)[1])) for name, text in LOCKS.items()
    }
    assert extras == ROLES | {"build.txt": set()}
    assert set.union(*extras.values()) == set(PROJECT["project"]["optional-dependencies"])
    written = re.findall(r"--output-file requirements/(\S+)", (ROOT / "Makefile").read_text())
    assert sorted(written) == sorted(LOCKS)


@pytest.mark.parametrize("name", sorted(set(ROLES) - {"lock.txt"}))
def test_a_role_installs_what_it_needs_and_nothing_that_others_do(name: str) -> None:
    project = PROJECT["project"]
    wanted = [line for extra in ROLES[name] for line in project["optional-dependencies"][extra]]
    assert unlocked([Requirement(line) for line in [*project["dependencies"], *wanted]], LOCKS[name]) == []
    wanted_here = {"analyst": {"matplotlib"}, "estimators": {"scikit-learn", "scipy"}}
    unwanted = UNWANTED - set().union(*(wanted_here.get(extra, set()) for extra in ROLES[name]))
    assert set(pins(LOCKS[name])) & unwanted == set()


def test_the_changelog_names_the_version_or_is_unreleased() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    latest = changelog[changelog.index("\n## [") :]
    released = RELEASED.match(latest, 1)
    assert released is None or released[1] == __version__
    assert released or latest.startswith(f"\n## [Unreleased]\n\nVersion {__version__} ")


def test_the_version_stands_in_one_place() -> None:
    source = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert "version" not in PROJECT["project"]
    assert source == PACKAGES["eigenveil"] / "eigenveil" / "_version.py"


def test_every_release_in_the_changelog_speaks_of_privacy() -> None:
    _, *releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert [text.splitlines()[0] for text in releases if "\n### Privacy\n" not in text] == []


def test_the_wheel_holds_the_four_packages() -> None:
    build = PROJECT["tool"]["hatch"]["build"]
    packages = {f"{root.name}/{name}" for name, root in PACKAGES.items()}
    assert set(build["targets"]["wheel"]["packages"]) == packages
    assert set(build["dev-mode-dirs"]) == {root.name for root in PACKAGES.values()}


@pytest.mark.parametrize("package", PACKAGES)
def test_each_folder_holds_one_typed_package(package: str) -> None:
    root = PACKAGES[package]
    assert [p.parent.name for p in root.glob("*/__init__.py")] == [package]
    assert (root / package / "py.typed").is_file()


@pytest.mark.parametrize("command", PROJECT["project"]["scripts"])
def test_each_command_leads_to_something_to_call(command: str) -> None:
    target = PROJECT["project"]["scripts"][command]
    assert callable(EntryPoint(command, target, "console_scripts").load())
