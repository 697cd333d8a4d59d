"""Files in deploy/ fit the code: units, container files, and the commands that OPERATIONS.md shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from eigenveil_client import cli
from eigenveil_client.site.commands import main
from eigenveil_server import cli as coordinator_cli
from tests.repo.scripts import script
from tests.repo.tree import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
EXPOSURE = re.compile(r"Overall exposure level for \S+: ([0-9.]+)")
GROUPS: dict[str, click.Command] = {
    "eigenveil": cli.eigenveil,
    "eigenveil-site": main.group,
    "eigenveil-coordinator": coordinator_cli.group,
}
BROKEN = re.compile(r" *\\\n +")
# What may stand before the program's name.
BEFORE = re.compile(r"^(?: +|ExecStart=)(?:sudo -u \S+ )?(?:/opt/eigenveil/bin/)?")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_units_are_hardened(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = EXPOSURE.search(done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= 3.0


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_process_out_of_memory_ends_alone_and_a_stop_signals_the_daemon_alone(
    unit: Path,
) -> None:
    """systemd stops a whole unit for one killed process, and tells all of its processes to stop, unless it is
    told not to: a reader that is ended so looks like a damaged file."""
    assert {"OOMPolicy=continue", "KillMode=mixed"} <= set(unit.read_text().splitlines())


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Program and words of every command line in indented blocks of a page, or in a unit."""
    lines = (line for line in BROKEN.sub(" ", text).splitlines() if line.startswith(("    ", "ExecStart=")))
    shown = (BEFORE.sub("", line).split(" #")[0].split() for line in lines if " | " not in line)
    return [(words[0], words[1:]) for words in shown if words and words[0] in GROUPS]


def unknown(program: str, words: list[str]) -> str:
    """Unknown part of a program's command line; empty if none."""
    command: click.Command = GROUPS[program]
    rest = list(words)
    while isinstance(command, click.Group):
        name = rest.pop(0) if rest else ""
        found = command.get_command(click.Context(command), name)
        if found is None:
            return f"{program} has no command {name!r}"
        command = found
    known = {"--help", *(option for parameter in command.params for option in parameter.opts)}
    strange = [word for word in rest if word.startswith("--") and word.partition("=")[0] not in known]
    return f"{program} {command.name} has no {strange}" if strange else ""


PAGES = [*UNITS, DEPLOY / "OPERATIONS.md", ROOT / "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_shown_exists(page: Path) -> None:
    shown = commands(page.read_text())
    assert shown
    assert [problem for program, words in shown if (problem := unknown(program, words))] == []


def test_a_command_that_does_not_exist_is_found() -> None:
    (one,) = commands("    eigenveil-site serve --config F --loud\n")
    assert unknown(*one) == "eigenveil-site serve has no ['--loud']"
    (two,) = commands("    eigenveil-coordinator destroy\n")
    assert unknown(*two) == "eigenveil-coordinator has no command 'destroy'"


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "eigenveil.json").read_text())
    query = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = {name for expression in query for name in re.findall(r"\beigenveil_\w+", expression)}
    reference = script("write_reference")
    every = {reference.exported(one) for one in (*reference.of_coordinator(), *reference.of_site())}
    assert {name.removesuffix("_bucket") for name in named} == every
