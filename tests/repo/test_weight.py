"""Modules that a command line loads before its command, and a daemon's; no time is measured."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib

import pytest

from tests.repo.tree import ROOT

SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
GROUPS = {
    "eigenveil": "eigenveil_client.cli:eigenveil",
    "eigenveil-site": "eigenveil_client.site.commands.main:group",
    "eigenveil-coordinator": "eigenveil_server.cli:group",
}
# Libraries that help may load: the command line's own.
LIGHT = {"click", "markdown_it", "mdurl", "pygments", "rich", "tomli_w"}
HELP = """
import click
from {module} import {group} as group
def helps(command, context):
    command.get_help(context)
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        one = command.get_command(context, name)
        helps(one, click.Context(one, info_name=name, parent=context))
helps(group, click.Context(group))
"""
NEVER = {
    "adbc_driver_manager", "adbc_driver_postgresql", "bed_reader", "dask", "distributed", "dp_accounting",
    "duckdb", "hypothesis", "jinja2", "matplotlib", "opendp", "pandas", "pint", "psycopg", "python_calamine",
    "scipy", "sklearn", "starlette", "uvicorn", "zarr",
}  # fmt: skip
DAEMONS = {
    "eigenveil_server.daemon": NEVER | {"pyarrow", "eigenveil_client"},
    "eigenveil_client.site.daemon.service": NEVER | {"pyarrow", "eigenveil_server"},
}


def loaded(code: str) -> set[str]:
    """Top-level modules that `code` loads from installed distributions, our own packages with them."""
    program = f"""
import sys; before = set(sys.modules)
{code}
import json
new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(json.dumps(sorted(name for name in new if name not in sys.stdlib_module_names)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def strangers(names: set[str]) -> set[str]:
    """Those that are neither ours nor the command line's."""
    return {name for name in names if not name.startswith("eigenveil")} - LIGHT


@pytest.mark.parametrize("program", SCRIPTS)
def test_help_of_every_command_loads_nothing_heavy(program: str) -> None:
    module, group = GROUPS[program].split(":")
    assert strangers(loaded(HELP.format(module=module, group=group))) == set()


@pytest.mark.parametrize("daemon", DAEMONS)
def test_a_daemon_loads_nothing_of_other_roles(daemon: str) -> None:
    found = loaded(f"import {daemon}")
    assert found >= {"grpc", "numpy"}
    assert found & DAEMONS[daemon] == set()
