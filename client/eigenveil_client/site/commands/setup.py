"""Setup of a site: prompts for missing options, and enrolment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from eigenveil.dictionary.site_rules import analysts_line
from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.identity import Role
from eigenveil.study.study import NAME
from eigenveil_client.connection.identity import StoredIdentity, key_comparison_text, read_join
from eigenveil_client.connection.identity import enrol as enrol_here
from eigenveil_client.site import config as site_config
from eigenveil_client.site.daemon import service
from eigenveil_client.site.policy import Policy
from eigenveil_common.command import shell_command

EXISTING = click.Path(exists=True, path_type=Path)


def initial_settings(
    name: str | None, records: str | Path | None, analysts: tuple[str, ...], join: Path | None, as_json: bool
) -> tuple[str, Path, tuple[str, ...]]:
    """Return name, records and analysts by the options and the join file; prompt for missing ones. Raises
    UsageError without a terminal, or for a join file of another name; RequestError for an unusable one."""
    if join is not None:
        joined = read_join(join)
        if joined.identity.role is not Role.SITE:
            what = f"{join} enrols {joined.identity.role.value} {joined.name}"
            raise RequestError(Code.BAD_CONFIG, f"{what}; a site needs a join file of its own")
        if name not in (None, joined.name):
            raise click.UsageError(f"the join file is for {joined.name}, and --name is {name}")
        name = joined.name
    wanted = (("SOURCE or --records", records), ("--name", name))
    missing = [option for option, value in wanted if value is None]
    if missing and (as_json or not sys.stdin.isatty()):
        raise click.UsageError(f"missing {' and '.join(missing)}; at a terminal you are prompted for them")
    missing_file = isinstance(records, Path) and not records.exists()
    if join is not None and missing_file:  # before its token is used
        raise click.UsageError(f"--records: there is no {records}; the join file was not used")
    records = records or click.prompt("Its records: a file, or a folder of Parquet files", type=EXISTING)
    name = name or click.prompt("The site's name in the federation", value_proc=_name)
    if missing and not analysts:
        analysts = click.prompt(
            "Allowed analysts, by the names in their certificates (a, b; empty: none)",
            default="", show_default=False, value_proc=_names,
        )  # fmt: skip
    return str(name), Path(str(records)), analysts


def _name(text: str) -> str:
    if NAME.fullmatch(text) is None:
        raise click.UsageError("use at most 63 lower-case letters, digits and hyphens")
    return text


def _names(text: str) -> tuple[str, ...]:
    return tuple(_name(one) for one in text.replace(",", " ").split())


def enrolled(config_file: Path, join_file: Path) -> tuple[dict[str, Any], str]:
    """Make the site's key and have it certified; return the result as values and as text. Raises as `enrol`
    of the connection."""
    config = site_config.load(config_file)
    enrolled = enrol_here(join_file, config.identity, (Role.SITE,), config.proxy_rule)
    return enrolment(config_file, service.check_role(enrolled, config.name))


def enrolment(config_file: Path, stored: StoredIdentity) -> tuple[dict[str, Any], str]:
    """Return a site's enrolment as values and as text."""
    value = {
        "identity": stored.identity.uri,
        "coordinator": stored.coordinator,
        "certificate_ends": stored.expires.isoformat(),
        "key_sha256": stored.key_print,
    }
    text = (
        f"enrolled as {stored.identity.uri} until {stored.expires:%Y-%m-%d %H:%M} UTC\n"
        f"{key_comparison_text(stored.key_print)}\n"
        f"next: {shell_command('eigenveil-site', 'check', '--config', config_file)}"
    )
    return value, text


def to_enrol(config_file: Path) -> str:
    """Return the command that enrols a site as a line of text."""
    return f"next: {shell_command('eigenveil-site', 'enrol', '--config', config_file, '--join', 'FILE')}"


def to_allow(policy: Policy) -> str:
    """Return a line on the allowed analysts, below others; empty if some are named."""
    return "" if policy.analysts else f"\nname the allowed analysts in it: {analysts_line('NAME')}"


def joined(config_file: Path, join_file: Path) -> tuple[dict[str, Any], str]:
    """Enrol with a site.toml just written; it stays on an error, whose message states how to continue."""
    try:
        return enrolled(config_file, join_file)
    except EigenveilError as problem:
        # A used or unknown token cannot be used again.
        file = "FILE" if problem.code is Code.IDENTITY else join_file
        again = shell_command("eigenveil-site", "enrol", "--config", config_file, "--join", file)
        text = f"{problem}\n{config_file} is written; continue with: {again}"
        raise type(problem)(problem.code, text) from problem
