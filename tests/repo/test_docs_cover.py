"""Whatever can be typed, set, met or imported is in the reference, and what the guide speaks of exists."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

import eigenveil
import eigenveil.algorithms
from eigenveil.errors import Code
from eigenveil.planning.choose import make_plan
from eigenveil.reporting.explain import largest_inference_odds
from eigenveil.study.study import Column, Federation, Study
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.daemon.metrics import SITE
from eigenveil_client.site.state import store
from eigenveil_common.config import keys
from eigenveil_common.notify.config import Notify, NotifyAnalysts
from eigenveil_server.config import Config, ConsoleConfig
from eigenveil_server.storage import database
from tests.repo.scripts import script
from tests.repo.test_deploy import GROUPS, unknown
from tests.repo.tree import ROOT, files

GUIDE = [ROOT / "README.md", ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
FENCE = re.compile(r"^```(\w*).*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
OPTION = re.compile(r"^--[a-z][a-z-]*")
SETTING = re.compile(r"^([a-z_]+) = ")
KEY_ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
METRIC = re.compile(r"^eigenveil(?:_site)?_(?!client|server|common|proto)\w+$")
PUBLIC = re.compile(r"^eigenveil\.(\w+)")


@cache
def reference(name: str) -> str:
    """Text of a page as `make docs-site` writes it."""
    text: str = script("write_reference").WRITERS[name]()
    return text


def options(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Each command's words, with each of its options and arguments."""
    for parameter in command.params:
        yield from ((path, name) for name in parameter.opts if name.startswith("--"))
    if isinstance(command, click.Group):
        for name, one in command.commands.items():
            yield from options(one, f"{path} {name}")


def test_every_command_and_option_is_in_the_reference() -> None:
    parts = re.split(r"^##+ ", reference("commands"), flags=re.MULTILINE)
    sections = {part.partition("\n")[0]: part for part in parts}
    wanted = [pair for program, group in GROUPS.items() for pair in options(group, program)]
    assert len(wanted) > 200
    missed = [(path, name) for path, name in wanted if name not in sections[path] + sections[path.split()[0]]]
    assert [one for one in missed if one[1] != "--help"] == []


def names_of(kind: Any) -> set[str]:
    return {one.name for one in fields(kind)}


@pytest.mark.parametrize(
    ("title", "wanted"),
    [
        ("site.toml", {*keys(SiteConfig), *keys(RecordsConfig), *keys(Notify)}),
        ("site.toml", {"from" if name == "source" else name for name in names_of(ColumnRule)} - {"name"}),
        ("coordinator.toml", {*keys(Config), *keys(NotifyAnalysts), *keys(ConsoleConfig)}),
        ("study.toml", names_of(Study) - {"federation"}),
    ],
)
def test_every_key_is_in_the_reference(title: str, wanted: set[str]) -> None:
    (section,) = (part for part in reference("configuration").split("\n## ") if part.startswith(title))
    listed = set(KEY_ROW.findall(section))
    heads = re.findall(r"^### `\[+([\w.]+)", section, re.MULTILINE)
    tables = {word for head in heads for word in head.split(".")}
    assert wanted - listed - tables == set()


def test_every_key_has_a_meaning() -> None:
    """Of the files that are explained key by key."""
    read = script("example_keys").entries
    for name in ("site", "coordinator", "study", "profile"):
        text = (ROOT / "deploy" / "config" / f"{name}.example.toml").read_text()
        assert [(one.table, one.key) for one in read(text) if len(one.meaning) < 10] == []


def test_every_error_and_metric_and_public_name_is_in_the_reference() -> None:
    assert [code.value for code in Code if f"| `{code.value}` |" not in reference("errors")] == []
    public = [
        f"{module.__name__}.{name}" for module in (eigenveil, eigenveil.algorithms) for name in module.__all__
    ]
    assert [name for name in public if f":: {name}\n" not in reference("python")] == []
    result = set(re.findall(r"\| `(\w+)` \|", reference("metrics")))
    trees = (ast.parse(path.read_text()) for path in files("metrics.py", "client", "server"))
    nodes = [node for tree in trees for node in ast.walk(tree)]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    # Of a site also what follows the prefix, as in f"{SITE}_connected".
    texts |= {ast.unparse(n)[2:-1].replace("{SITE}", SITE) for n in nodes if isinstance(n, ast.JoinedStr)}
    named = {
        text
        for text in texts - {SITE}
        if isinstance(text, str) and re.fullmatch(r"eigenveil_[a-z_]+[a-z]", text)
    }
    assert len(named) > 15
    assert {name for name in named if not {name, f"{name}_total"} & result} == set()


def typed(text: str) -> Iterator[list[str]]:
    """The words of every command that a page shows, in a block or in a sentence."""
    blocks = "\n".join(body for kind, body in FENCE.findall(text) if kind == "console")
    lines = [line[2:] for line in re.sub(r" *\\\n *", " ", blocks).splitlines() if line.startswith("$ ")]
    lines += re.findall(r"^    (eigenveil.*)$", text, re.MULTILINE)
    lines += CODE.findall(FENCE.sub("", text))
    for line in lines:
        words = line.split(" #")[0].split(" |")[0].removesuffix(" &").split()
        if words and words[0] in GROUPS and len(words) > 1:
            yield words


def strange(text: str) -> list[str]:
    """Commands, options, keys, metrics and names on a page that do not exist."""
    every = {name for program, group in GROUPS.items() for _, name in options(group, program)} | {"--help"}
    found = [problem for words in typed(text) if (problem := unknown(words[0], words[1:]))]
    settings = set(KEY_ROW.findall(reference("configuration")))
    metrics = set(re.findall(r"\| `(\w+)` \|", reference("metrics")))
    for code in CODE.findall(FENCE.sub("", text)):
        if (option := OPTION.match(code)) and option[0] not in every:
            found.append(f"no command has {option[0]}")
        if (setting := SETTING.match(code)) and setting[1] not in settings:
            found.append(f"no file has the key {setting[1]}")
        if METRIC.match(code) and code not in metrics:
            found.append(f"there is no metric {code}")
        if (name := PUBLIC.match(code)) and not hasattr(eigenveil, name[1]):
            found.append(f"eigenveil has no {name[1]}")
    return found


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_what_the_guide_speaks_of_exists(page: Path) -> None:
    assert strange(page.read_text()) == []


def test_what_does_not_exist_is_found() -> None:
    text = (
        "`eigenveil fly`, `--loudly`, `min_records = 3`, `eigenveil_speed`, `eigenveil.Nothing`, `policy`\n"
        "```console\n$ eigenveil-site serve --fast\n```\n"
    )
    assert strange(text) == [
        "eigenveil-site serve has no ['--fast']", "eigenveil has no command 'fly'", "no command has --loudly",
        "no file has the key min_records", "there is no metric eigenveil_speed", "eigenveil has no Nothing",
    ]  # fmt: skip


def test_the_odds_that_officers_read_are_those_of_the_guarantee() -> None:
    page = (ROOT / "docs" / "guide" / "officer.md").read_text()
    rows = re.findall(r"^\| epsilon = ([\d.]+)[^|]*\| (\d+) \|$", page, re.MULTILINE)
    assert len(rows) >= 4
    for epsilon, most in rows:
        study = Study(
            name="bet",
            columns=(
                Column(name="a", unit="1", lower=0, upper=1),
                Column(name="b", unit="1", lower=0, upper=1),
            ),
            epsilon=float(epsilon),
            delta=1e-6,
            components=1,
            federation=Federation(sites=("here",)),
        )
        assert math.ceil(100 * largest_inference_odds(make_plan(study))) == int(most)


@pytest.mark.parametrize("page", GUIDE[2:], ids=lambda page: page.stem)
def test_every_block_of_the_guide_is_run_or_marked(page: Path) -> None:
    """`make docs-site` runs them."""
    run = {found["code"] for found in script("run_blocks").blocks(page)}
    shown = {body for kind, body in FENCE.findall(page.read_text()) if kind in ("console", "python", "toml")}
    assert shown - run == set()


def test_a_page_that_differs_from_its_output_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    run = script("run_blocks").run
    message = "```console\n$ echo 12 rows\n13 rows\n$ false # exit 1\n$ echo a; echo b\n...\nb\n```\n"
    page.write_text(f"{message}\n```python\nprint('x')\n```\n\n```text\ny\n```\n")
    text, found = run(page)
    assert len(found.problems) == 1
    assert text == page.read_text().replace("\ny\n", "\nx\n")
    page.write_text(
        "<!-- not run: no printer -->\n```console\n$ lpr\n```\n\n```console\n$ true # exit 3\n```\n"
    )
    _, found = run(page)
    assert (len(found.problems), found.not_run) == (1, ["page.md: no printer"])


@pytest.mark.parametrize("page", ["CHANGELOG.md", "deploy/OPERATIONS.md"])
def test_pages_state_the_schema_versions_of_the_code(page: str) -> None:
    stated = re.findall(r"schemas? (\d+) \(coordinator\) and (\d+) \(site\)", (ROOT / page).read_text())
    assert stated[:1] == [(str(database.VERSION), str(store.VERSION))]  # the changelog's newest entry
    assert len(stated) == 1 or page == "CHANGELOG.md"
