"""eigenveil-site: the program that runs beside a site's records.

Exit codes: 0 done; 2 bad usage, study or argument; 3 bad records; 4 bad configuration;
5 budget exhausted; 6 the site's policy forbids it; 7 too few records; 8 not found; 9 conflict;
20 identity; 21 protocol; 23 version; 24 coordinator unreachable; 70 storage; 71 a bug;
130 interrupted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenveil import __version__
from eigenveil.accounting.budget import NoiseRule
from eigenveil_client.site.commands import key_card_commands, state_commands
from eigenveil_client.site.commands.first_day import map_command, sizes_command
from eigenveil_client.site.commands.terminal import CONFIG, CONFIG_FILE, JSON
from eigenveil_client.site.policy import ALGORITHMS, Approval, Policy
from eigenveil_client.site.policy_sections import QualityRules
from eigenveil_common.command import SHORT_HELP, print_result, run
from eigenveil_common.config import keys
from eigenveil_common.examples import example

if TYPE_CHECKING:
    from eigenveil_client.site.config import SiteConfig


@click.group(
    help=f"Run one site of a federation.\n\n\b\n{(__doc__ or '').split(chr(10) * 2, 1)[1]}",
    context_settings=SHORT_HELP,
)
@click.version_option(__version__, prog_name="eigenveil-site")
def group() -> None:
    """The commands of a site."""


def _policy_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each key of the policy that has a description."""
    for one in reversed(keys(Policy).values()):
        if about := one.metadata.get("about"):
            name = f"--{one.name.replace('_', '-')}"
            shown = one.default != ""
            command = click.option(name, default=one.default, show_default=shown, help=about)(command)
    return command


@group.command()
@click.argument("source", required=False)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=".",
    show_default=True,
    help="Folder to set up.",
)
@click.option("--name", help="The site's name in the federation [default: the join file's, or prompt].")
@click.option(
    "--records",
    type=click.Path(path_type=Path),
    help="Instead of SOURCE: a file or folder of Parquet files, which is not looked at [default: prompt].",
)
@click.option("--join", "join_file", type=click.Path(path_type=Path), help="Join file: enrol at once.")
@click.option("--accept", is_flag=True, help="Ask nothing: take what is certain, and state the promises.")
@click.option(
    "--person", default="", metavar="HEADER", help="Column that names the person; none: each row is another."
)
@click.option("--table", default="", help="Table of SQLite or PostgreSQL.")
@click.option("--sheet", default="", help="Sheet of a workbook.")
@click.option("--sql", default="", help="One SELECT over SOURCE.")
@click.option("--sql-file", type=click.Path(path_type=Path), help="File with one SELECT over SOURCE.")
@_policy_options
@click.option(
    "--algorithm",
    "algorithms",
    multiple=True,
    default=ALGORITHMS,
    show_default=True,
    help="Algorithm that this site answers; repeat it for each.",
)
@click.option(
    "--approval",
    type=click.Choice([one.value for one in Approval]),
    default=Approval.MANUAL.value,
    show_default=True,
    help="Who decides about each study: a person, or the rules alone.",
)
@click.option(
    "--analyst",
    "analysts",
    multiple=True,
    help="Allowed analyst, by the name in the certificate; repeat it for each [default: none].",
)
@click.option(
    "--noise",
    type=click.Choice([rule.value for rule in NoiseRule]),
    default=NoiseRule.GAUSSIAN.value,
    show_default=True,
    help="Noise that its budget allows; any: also delta = 0 and algorithms with other noise.",
)
@JSON
def init(
    source: str | None,
    folder: Path,
    name: str | None,
    records: Path | None,
    join_file: Path | None,
    accept: bool,
    person: str,
    table: str,
    sheet: str,
    sql: str,
    sql_file: Path | None,
    analysts: tuple[str, ...],
    noise: str,
    approval: str,
    as_json: bool,
    **limits: Any,
) -> None:
    """Look at SOURCE and write DIR/site.toml; with a join file, enrol as well.

    SOURCE is a file, a folder of Parquet files, or a database (postgresql://USER@HOST/NAME or service=NAME).
    Its columns are matched with the federation's dictionary. At a terminal you are asked about what is not
    certain; elsewhere it stays a comment in the file. Nothing of the records is sent. After Ctrl-C or an
    error the same command goes on: answers, enrolment and charges stay."""
    from eigenveil_client.site import config as site_config
    from eigenveil_client.site.commands import setup
    from eigenveil_client.site.commands.first_day import first_day

    if source is not None and records is not None:
        raise click.UsageError("state either SOURCE or --records")
    asks_records = source is None and records is None
    options = first_day.TableOptions(table=table, sheet=sheet, sql=sql, sql_file=sql_file)
    begun, name, join_file = first_day.begun_settings(source, options, folder, name, join_file)
    name, records, analysts = setup.initial_settings(name, source or records, analysts, join_file, as_json)
    source = str(records) if asks_records else source
    quality = QualityRules(**{rule: limits.pop(rule) for rule in keys(QualityRules)})
    policy = Policy(
        noise=NoiseRule(noise), approval=Approval(approval), analysts=analysts, quality=quality, **limits
    )
    if source is not None:
        first_day.look_and_write(
            source, options, folder, name, policy, join_file,
            begun=begun, person=person, accept=accept, as_json=as_json,
        )  # fmt: skip
        return
    options.require_unused()
    if person:
        raise click.UsageError("--person needs SOURCE; without it, state --person-column")
    path = site_config.create(folder, name=name, records=records, policy=policy)
    view: dict[str, Any] = {"config": str(path), "name": name}
    text = setup.to_enrol(path)
    if join_file is not None:
        value, text = setup.joined(path, join_file)
        view |= value
    print_result(view, as_json, f"wrote {path}{setup.to_allow(policy)}\n{text}")


@group.command("example")
def show_example() -> None:
    """Print a site.toml with every key and its meaning."""
    click.echo(example("site"), nl=False)


@group.command()
@CONFIG_FILE
@click.option("--join", "join_file", type=click.Path(path_type=Path), required=True, help="Join file.")
@JSON
def enrol(config_file: Path, join_file: Path, as_json: bool) -> None:
    """Make this site's key here, and have it certified with a one-time join file."""
    from eigenveil_client.site.commands import setup

    value, text = setup.enrolled(config_file, join_file)
    print_result(value, as_json, text)


@group.command()
@CONFIG_FILE
@click.option("--study", "study_file", type=click.Path(path_type=Path), help="Check the records against it.")
@JSON
def check(config_file: Path, study_file: Path | None, as_json: bool) -> int:
    """Check the configuration, the identity and the records, here; nothing is sent.

    Without --study each column that studies may use is shown; this table is confidential. With --study the
    check states instead if that study would be answered."""
    from eigenveil.errors import EigenveilError
    from eigenveil_client.site import config as site_config
    from eigenveil_client.site.commands.checks import offline_checks
    from eigenveil_client.site.commands.column_profiles import profile_columns, show_profiles
    from eigenveil_client.site.commands.consent import plan_of
    from eigenveil_client.site.commands.line_report import counted_checks
    from eigenveil_common.doctor import exit_code, fail
    from eigenveil_common.doctor import show as doctor_show
    from eigenveil_common.trusted_files import check_trusted

    config = site_config.load(config_file)
    check_trusted([config_file])
    plan = None if study_file is None else plan_of(config, study_file)
    counts, counted = counted_checks(config, [] if plan is None else plan.study.columns)
    checks = offline_checks(config, plan, counted)
    try:
        columns = [] if plan else profile_columns(config, counts)
    except EigenveilError as problem:
        failed = fail("columns", str(problem), code=problem.code)
        checks += [failed] if failed.text not in {one.text for one in checks} else []
    else:
        checks += [one.check(config_file) for one in columns if one.odd]
        if columns and not as_json:
            show_profiles(columns)
    doctor_show(checks, as_json)
    return exit_code(checks)


@group.command()
@CONFIG
@JSON
def serve(config: SiteConfig, as_json: bool) -> None:
    """Serve until SIGTERM or SIGINT: request work from the coordinator and answer it."""
    from eigenveil_client.site.daemon import service

    del as_json  # the one line on standard output is JSON in any case
    service.serve(config)


@group.command()
@CONFIG
@JSON
def authorities(config: SiteConfig, as_json: bool) -> None:
    """Show the coordinator's authorities that this site trusts, and who must sign a change.

    The next greeting may bring a later list, if it has these signatures; every change is in the log."""
    from eigenveil_client.connection.identity_files import stored_authorities

    stored = stored_authorities(config.identity)
    print_result(stored.as_dict(), as_json, f"list of authorities: {stored.text()}")


@group.command("dictionary")
@CONFIG
def show_dictionary(config: SiteConfig) -> None:
    """Print the federation's dictionary as TOML: the last one received, or else the site's own.

    Saved as a file and named in site.toml, it states the plausible range of a column."""
    from eigenveil.dictionary.formats import dictionary_to_toml
    from eigenveil_client.site.config import dictionary_in_force

    click.echo(dictionary_to_toml(dictionary_in_force(config)), nl=False)


@group.command()
@CONFIG_FILE
@JSON
def doctor(config_file: Path, as_json: bool) -> int:
    """Check configuration, files, ledgers, records and the connection to the coordinator, one line each.

    Only a greeting is sent. Exit code 1 if a check failed."""
    from eigenveil_client.site.commands.checks import site_checks
    from eigenveil_common.doctor import show as doctor_show

    return doctor_show(site_checks(config_file), as_json)


@group.command()
@CONFIG_FILE
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="A port of this machine; any free one."
)
@click.option(
    "--lang", "language", default="en", show_default=True, help="The page's first language: en or de."
)
def console(config_file: Path, port: int, language: str) -> None:
    """Serve the site's console, on this machine only: studies and decisions, messages sent, columns, budget.

    It prints a one-time link, works beside a running daemon, and ends with SIGTERM or SIGINT."""
    from eigenveil_client.site.commands.console import program

    program.serve(config_file, port, language)


for command in (
    map_command.map_columns,
    sizes_command.propose_sizes,
    *state_commands.COMMANDS,
    *key_card_commands.COMMANDS,
):
    group.add_command(command)


def main() -> int:
    return run(group, "site")


if __name__ == "__main__":
    sys.exit(main())
