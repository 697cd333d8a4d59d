"""A release: its statement, the licences that it allows, its citation, and the trees that it refuses."""

from __future__ import annotations

import re
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.release import __main__ as release
from deploy.release.licences import Licence, found, licence_of_text, page, refused
from deploy.release.provenance import Pin, as_text, locked, not_installed, statement
from tests.repo.tree import ROOT

COMMIT, EPOCH = "0123456789abcdef0123456789abcdef01234567", 1_800_000_000
TOOLS = locked(ROOT / "requirements" / "build.txt")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text())
# Keys that CFF 1.2.0 requires, and those of its keys that are used here.
REQUIRED = {"authors", "cff-version", "message", "title"}
USED = REQUIRED | {"abstract", "keywords", "license", "references", "type"}


def licence(expression: str) -> Licence:
    return Licence(package="a", version="1", expression=expression, source="expression")


def repository(folder: Path) -> Path:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / "kept").write_text("first")
    words = ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "first"]
    for line in (["add", "kept"], words):
        subprocess.run(["git", *line], cwd=folder, check=True)
    return folder


def test_the_statement_names_each_file_by_its_digest_and_the_commit_and_lock_it_is_built_from() -> None:
    made = statement({"a.whl": "00" * 32, "b.json": "11" * 32}, COMMIT, EPOCH, TOOLS)
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert made["predicateType"] == "https://slsa.dev/provenance/v1"
    assert {one["name"]: one["digest"]["sha256"] for one in made["subject"]} == {
        "a.whl": "00" * 32, "b.json": "11" * 32,
    }  # fmt: skip
    source, *packages = made["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": COMMIT}
    lock = (ROOT / "requirements" / "build.txt").read_text()
    stated = [value for one in packages for value in one["annotations"]["allowedSha256"]]
    assert sorted(stated) == sorted(re.findall(r"sha256:(\w{64})", lock))
    assert all(one["uri"].removeprefix("pkg:pypi/").replace("@", "==") in lock for one in packages)


def test_the_statement_holds_no_time_and_no_path_of_a_machine() -> None:
    text = as_text(statement({"a": "00" * 32}, COMMIT, EPOCH, TOOLS))
    assert text == as_text(statement({"a": "00" * 32}, COMMIT, EPOCH, TOOLS))
    assert re.findall(r"\d{4}-\d\d-\d\d|\d\d:\d\d|Z\"", text) == []
    assert re.findall(r'[" ]/\w+', text) == []


def test_a_tool_of_another_version_than_the_lock_is_named() -> None:
    assert not_installed(TOOLS) == []
    older = replace(TOOLS[0], version="0.0.1")
    absent = Pin(name="no-such-tool", version="1", sha256=(), here=True)
    elsewhere = replace(absent, here=False)
    assert [line.split()[0] for line in not_installed([older, absent, elsewhere])] == [
        older.name, "no-such-tool",
    ]  # fmt: skip


def test_an_uncommitted_or_unknown_file_refuses_the_build_and_is_named(tmp_path: Path) -> None:
    tree = repository(tmp_path)
    release.require_clean(tree)
    for name in ("kept", "unknown"):
        (tree / name).write_text("second")
        with pytest.raises(SystemExit, match=name):
            release.require_clean(tree)
        (tree / name).unlink()
        subprocess.run(["git", "checkout", "-q", "."], cwd=tree, check=True)


def test_only_the_files_of_the_commit_are_built_from(tmp_path: Path) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    tree.mkdir()
    (repository(tree) / "kept").write_text("second")
    (tree / "unknown").write_text("second")
    release.export(tree, out)
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("kept", "first")]


def test_every_package_of_a_role_has_an_allowed_licence() -> None:
    licences = found()
    assert refused(licences) == []
    assert {"numpy", "scikit-learn", "grpcio", "duckdb"} <= {one.package for one in licences}
    assert page(licences).count("\n| ") == len(licences) + 1


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only AND MIT", False),
        ("MIT AND (AGPL-3.0-only OR 0BSD)", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("unknown", False),
        ("LicenseRef-Proprietary", False),
    ],
)
def test_a_licence_is_allowed_if_every_part_of_it_is(expression: str, allowed: bool) -> None:
    assert (refused([licence(expression)]) == []) is allowed


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        (
            "Redistribution and use in source and binary forms ... to endorse or promote products",
            "BSD-3-Clause",
        ),
        ("Redistribution and use in source and binary forms", "BSD-2-Clause"),
        ("Permission is hereby granted, free of charge, to any person", "MIT"),
        ("Apache License Version 2.0, January 2004 ... MIT: Permission is hereby granted", "Apache-2.0"),
        ("All rights reserved.", "unknown"),
    ],
)
def test_the_licence_of_a_text_is_the_first_that_it_has(text: str, expression: str) -> None:
    assert licence_of_text(text) == expression


def test_the_citation_has_the_keys_of_its_format_and_the_authors_of_the_project() -> None:
    assert REQUIRED <= set(CITATION) <= USED
    assert CITATION["cff-version"] == "1.2.0"
    assert CITATION["type"] == "software"
    assert CITATION["license"] == PROJECT["license"]
    assert [one["name"] for one in CITATION["authors"]] == [one["name"] for one in PROJECT["authors"]]
    assert (CITATION["title"], CITATION["abstract"]) == (PROJECT["name"], PROJECT["description"])
    assert CITATION["keywords"] == PROJECT["keywords"]


def test_the_citation_refers_to_the_four_papers_as_the_pages_name_them() -> None:
    sources = (ROOT / "docs" / "algorithms" / "README.md").read_text()
    for paper in CITATION["references"]:
        assert {"type", "title", "authors", "year"} <= set(paper)
        names = ", ".join(one["family-names"] for one in paper["authors"])
        assert f"| {names}, *{paper['title']}*, {paper['conference']['name']} |" in sources
        assert str(paper["year"]) in paper["conference"]["name"]
    assert len(CITATION["references"]) == 4


def test_the_security_page_names_every_claim_and_links_to_what_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    claims = re.findall(r"^## \[(P\d+)\]", (ROOT / "core" / "PRIVACY.md").read_text(), re.MULTILINE)
    assert f"[{claims[0]}] to [{claims[-1]}]" in text
    links = re.findall(r"\]\(([\w./-]+)\)", text)
    assert len(links) >= 4
    assert [link for link in links if not (ROOT / link).exists()] == []
