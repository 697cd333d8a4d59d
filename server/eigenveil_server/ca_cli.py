"""eigenveil-coordinator ca: whom the federation trusts, and how that changes without a restart."""

from __future__ import annotations

from pathlib import Path

import click

from eigenveil_common.command import say, typed
from eigenveil_common.config import load
from eigenveil_server import rollover
from eigenveil_server.config import Config

config_option = click.option(
    "--config",
    "config_path",
    required=True,
    type=click.Path(path_type=Path),
    help="The coordinator.toml that init wrote.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object.")
anyway_option = click.option("--anyway", is_flag=True, help="Also if somebody is shut out by it.")


@click.group()
def ca() -> None:
    """The federation's certificate authority, and its succession.

    rotate (or csr, then import), switch, retire: in this order, each when `show` says that everybody has
    followed. The coordinator may serve meanwhile; no enrolled site needs a restart or a
    new join file; join files that were not used before `switch` must be made again.
    """


@ca.command()
@config_option
@json_option
def show(config_path: Path, as_json: bool) -> None:
    """Which authorities are trusted, which one issues, and who has not followed yet."""
    _tell(load(config_path, Config), as_json)


def _tell(config: Config, as_json: bool) -> None:
    found = rollover.standing(config)
    say(found.as_dict(), as_json, found.text())


@ca.command()
@config_option
@json_option
def rotate(config_path: Path, as_json: bool) -> None:
    """Make the next authority, its own root. It is trusted from now on; the old one still issues."""
    config = load(config_path, Config)
    rollover.rotate(config)
    _tell(config, as_json)


@ca.command()
@config_option
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where to write the request.")
@json_option
def csr(config_path: Path, out: Path, as_json: bool) -> None:
    """Ask an authority elsewhere, such as an offline root, to sign the next one; its key is made here."""
    rollover.request(load(config_path, Config), out)
    say(
        {"request": str(out)},
        as_json,
        f"Wrote {out}. Have it signed as a CA (CA:TRUE, path length 0, keyCertSign), then:\n"
        + typed("eigenveil-coordinator", "ca", "import", "--config", config_path, "--cert", "FILE"),
    )


@ca.command(name="import")
@config_option
@click.option("--cert", type=click.Path(path_type=Path), required=True, help="What came back, PEM.")
@json_option
def import_(config_path: Path, cert: Path, as_json: bool) -> None:
    """Trust the authority whose certificate came back for `csr`; the old one still issues."""
    config = load(config_path, Config)
    rollover.take(config, cert)
    _tell(config, as_json)


@ca.command()
@config_option
@anyway_option
@json_option
def switch(config_path: Path, anyway: bool, as_json: bool) -> None:
    """Issue with the new authority from now on; the old one stays trusted."""
    config = load(config_path, Config)
    rollover.switch(config, anyway=anyway)
    _tell(config, as_json)


@ca.command()
@config_option
@anyway_option
@json_option
def retire(config_path: Path, anyway: bool, as_json: bool) -> None:
    """Trust the old authority no more, and delete its key."""
    config = load(config_path, Config)
    rollover.retire(config, anyway=anyway)
    _tell(config, as_json)
