"""Command line eigenveil-coordinator: init, serve, token, deny, status and others."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from eigenveil import __version__
from eigenveil.errors import Code
from eigenveil.identity import CALLERS, Role
from eigenveil_common.command import SHORT_HELP, print_result, run, shell_command
from eigenveil_common.config import load
from eigenveil_common.examples import example
from eigenveil_common.files import check_new
from eigenveil_common.start import INTERRUPTED
from eigenveil_server.admin import commands
from eigenveil_server.admin.ca_commands import ca, release_key
from eigenveil_server.admin.commands import PATH, config_option, dictionary, json_option
from eigenveil_server.config import Config


def _exit_codes() -> str:
    codes: dict[int, list[str]] = {0: ["success"], INTERRUPTED: ["interrupted"]}
    for code in Code:
        codes.setdefault(code.exit_code, []).append(code.value)
    lines = [f"  {number:<4} {', '.join(import_command)}" for number, import_command in sorted(codes.items())]
    return "\n".join(["\b", "Exit codes:", *lines])


@click.group(epilog=_exit_codes(), context_settings=SHORT_HELP)
@click.version_option(__version__, prog_name="eigenveil-coordinator")
def group() -> None:
    """Run the coordinator of a federation."""


@group.command()
@click.option("--dir", "folder", required=True, type=PATH, help="A new folder.")
@click.option("--federation", required=True, help="Lower-case letters, digits and hyphens.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Name or address for clients to dial.")
@click.option("--listen", default="", help="Address to bind, if it differs from --host.")
@click.option("--port", default=7443, show_default=True)
@click.option("--enrol-port", default=7444, show_default=True)
@click.option("--budget-epsilon", default=10.0, show_default=True, help="Total budget of the federation.")
@click.option("--budget-delta", default=1e-6, show_default=True)
@click.option("--max-epsilon-per-study", default=5.0, show_default=True, help="Limit for one study.")
@click.option("--database", default="", metavar="URL", help="An empty PostgreSQL database, not a file.")
@click.option(
    "--csr",
    type=PATH,
    help="Write a request for an offline root to sign here, instead of creating an authority.",
)
@json_option
def init(folder: Path, csr: Path | None, as_json: bool, **values: str | int | float) -> None:
    """Create a new federation: keys, certificate authority, empty ledger, coordinator.toml."""
    from eigenveil_server.admin.setup import create

    path = create(folder, csr, **values)
    if csr is None:
        then = shell_command("eigenveil-coordinator", "serve", "--config", path)
        print_result({"config": str(path)}, as_json, f"Wrote {path}\nNext: {then}")
        return
    import_command = ("ca", "import", "--config", path, "--cert", "FILE", "--signer", "ROOT")
    then = f"have {csr} signed as a CA (CA:TRUE, path length 0, keyCertSign), then:\n"
    then += shell_command("eigenveil-coordinator", *import_command)
    print_result({"config": str(path), "request": str(csr)}, as_json, f"Wrote {path} and {csr}\nNext: {then}")


@group.command("example")
def show_example() -> None:
    """Print a coordinator.toml with every key and its meaning."""
    click.echo(example("coordinator"), nl=False)


@group.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Errors as JSON; the serving line is always JSON.")
def serve(config_path: Path, as_json: bool) -> None:
    """Serve until SIGTERM or SIGINT. Running studies are resumed."""
    from eigenveil_common.trusted_files import check_trusted
    from eigenveil_server.daemon import serve_until_stopped

    check_trusted([config_path])
    serve_until_stopped(load(config_path, Config))


@group.command()
@config_option
@click.option("--role", required=True, type=click.Choice([role.value for role in CALLERS]))
@click.option(
    "--name",
    "names",
    required=True,
    multiple=True,
    help="Name in the certificate; repeat it for several.",
)
@click.option("--valid-hours", default=24.0, show_default=True, type=click.FloatRange(0.01, 720.0))
@click.option(
    "--out",
    type=PATH,
    help="Write the join file here, mode 0600; several as NAME.join into this folder.",
)
@click.option("--lift-denial", is_flag=True, help="Admit a denied name again.")
@click.option("--device", default="", help="For a further device of a person: the others stay admitted.")
@json_option
def token(
    config_path: Path,
    role: str,
    names: tuple[str, ...],
    valid_hours: float,
    out: Path | None,
    lift_denial: bool,
    device: str,
    as_json: bool,
) -> None:
    """Create a one-time join file for each site, analyst or operator. Earlier unused ones become void."""
    from eigenveil_server.admin.setup import join_file

    if math.isnan(valid_hours):  # nan passes every range check
        raise click.BadParameter("nan is not a number of hours", param_hint="--valid-hours")
    create = partial(
        join_file, load(config_path, Config), Role(role), valid_ms=int(valid_hours * 3_600_000),
        lift_denial=lift_denial, device=device,
    )  # fmt: skip
    if len(names) > 1:
        _join_files(create, names, out, as_json=as_json)
        return
    join = create(names[0], out=out)
    if out is None:
        click.echo(json.dumps(join, sort_keys=True))
    else:
        print_result({"join": str(out)}, as_json, f"Wrote {out}. It works once; hand it over by a safe way.")


def _join_files(
    create: Callable[..., object], names: tuple[str, ...], folder: Path | None, *, as_json: bool
) -> None:
    """Create NAME.join in a folder for each of several names."""
    if folder is None:
        raise click.UsageError("several names need --out FOLDER")
    files = {name: folder / f"{name}.join" for name in names}
    for path in files.values():
        check_new(path)  # all of them, before one is written
    for name, path in files.items():
        create(name, out=path)
    text = f"Wrote {', '.join(map(str, files.values()))}. Each works once; hand it over by a safe way."
    print_result({"joins": [str(path) for path in files.values()]}, as_json, text)


@group.command()
@config_option
@click.option("--role", required=True, type=click.Choice([role.value for role in CALLERS]))
@click.option("--name", required=True)
@json_option
def deny(config_path: Path, role: str, name: str, as_json: bool) -> None:
    """Deny access to a site, an analyst or an operator from now on, and void its unused join files.

    Only a token made with --lift-denial admits it again."""
    from eigenveil_server.admin.setup import deny_identity

    deny_identity(load(config_path, Config), Role(role), name)
    print_result({"denied": f"{role}/{name}"}, as_json, f"{role} {name} is refused from now on.")


study_option = click.option("--study", required=True, help="First digits of the study's digest, six or more.")


@group.command()
@config_option
@json_option
def studies(config_path: Path, as_json: bool) -> None:
    """List all studies, also those that wait for `approve` or `refuse`."""
    from eigenveil_server.admin.status import report, studies_text

    found = report(load(config_path, Config))
    print_result({"studies": found["studies"]}, as_json, studies_text(found))


@group.command()
@config_option
@study_option
@json_option
def approve(config_path: Path, study: str, as_json: bool) -> None:
    """Approve a study that waits because it costs more than operator_approval_above_epsilon."""
    from eigenveil_server.studies.operator_approvals import APPROVED, decide

    found = decide(load(config_path, Config), study, APPROVED)
    print_result(
        {"approved": found.digest}, as_json, f"{found.name} by {found.analyst} starts if the budget allows."
    )


@group.command()
@config_option
@study_option
@json_option
def refuse(config_path: Path, study: str, as_json: bool) -> None:
    """Refuse a study that waits for approval. It has reserved nothing."""
    from eigenveil_server.studies.operator_approvals import REFUSED, decide

    found = decide(load(config_path, Config), study, REFUSED)
    print_result({"refused": found.digest}, as_json, f"{found.name} by {found.analyst} will not start.")


@group.command()
@config_option
@json_option
def status(config_path: Path, as_json: bool) -> None:
    """Show budget, studies and identities. Works also while the coordinator is not serving."""
    from eigenveil_server.admin.status import report, text

    found = report(load(config_path, Config))
    print_result(found, as_json, text(found))


@group.command()
@config_option
@json_option
def doctor(config_path: Path, as_json: bool) -> int:
    """Check files, database, ledger, certificates and both listeners, one line each.

    Changes nothing. Exit code 1 if a check failed."""
    from eigenveil_common.doctor import show
    from eigenveil_server.admin.doctor import coordinator_checks

    return show(coordinator_checks(config_path), as_json)


group.add_command(ca)
group.add_command(release_key)
group.add_command(dictionary)


for command in commands.COMMANDS:
    group.add_command(command)


def main() -> int:
    return run(group, "coordinator")


if __name__ == "__main__":
    sys.exit(main())
