"""Folder of a site in which `init` has begun: its settings, what is done, and the command that goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import click

from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.identity import Role
from eigenveil.study.checks import parse_toml
from eigenveil_client.connection.identity import folder_identity, load_identity, read_join
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands.first_day.counted import is_counted
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.mapping.first_look import LISTING, NOBODY
from eigenveil_client.site.policy import Policy
from eigenveil_common.command import errors, shell_command
from eigenveil_common.files import path_exists, read_text
from eigenveil_common.trusted_files import check_trusted

ELSEWHERE = "or choose another folder with --dir"


def begun_site(folder: Path, records: RecordsConfig) -> SiteConfig | None:
    """Return the configuration that `init` wrote into a folder for these records; None if it has none.
    Raises RequestError: code `conflict`, it is of other records, or `init` did not write it."""
    path = folder / "site.toml"
    if not path_exists(path):
        return None
    check_trusted([path])
    loaded, text = site_config.load(path), read_text(path)
    if not text.startswith(site_config.HEADING) or not isinstance(parse_toml(text).get("records"), dict):
        todo = f"Go on with: {shell_command('eigenveil-site', 'map', '--config', path)}, {ELSEWHERE}"
        raise RequestError(Code.CONFLICT, f"{path} exists already, not from init and a SOURCE. {todo}")
    if not _are_same(loaded.records, records):
        todo = f"State these as SOURCE, {ELSEWHERE}"
        raise RequestError(Code.CONFLICT, f"{path} is for other records: {loaded.records}. {todo}")
    return loaded


def _are_same(stated: RecordsConfig, wanted: RecordsConfig) -> bool:
    """Return True if the parts of a source that a command names are those of site.toml."""
    select = "" if wanted.sql == LISTING else wanted.sql
    parts = ((wanted.table, stated.table), (wanted.sheet, stated.sheet), (select, stated.sql))
    paths = [None if one is None else one.resolve() for one in (stated.source, wanted.source)]
    same_file = wanted.sql_file is None or wanted.sql_file.resolve() == stated.sql_file
    same = paths[0] == paths[1] and stated.database == wanted.database and same_file
    return same and all(part in ("", own) for part, own in parts)


def check_options(path: Path, begun: SiteConfig, name: str, person: str, policy: Policy) -> None:
    """Raise RequestError, code `conflict`, if options state otherwise than site.toml, which they do not
    change."""
    usual = Policy()
    other = [
        one.name for one in fields(Policy)
        if getattr(policy, one.name) not in (getattr(usual, one.name), getattr(begun.policy, one.name))
    ]  # fmt: skip
    other += ["name"] if name != begun.name else []
    other += ["person"] if person not in ("", begun.person_header or NOBODY) else []
    if other:
        what = f"{path} exists already, with another value of {', '.join(other)}"
        raise RequestError(Code.CONFLICT, f"{what}. Leave the option out and edit the file, {ELSEWHERE}")


def check_join(path: Path, begun: SiteConfig, join: Path) -> None:
    """Raise RequestError, code `conflict`, if a join file is not of the site that site.toml names."""
    joined = read_join(join).identity
    if (joined.role, joined.name) != (Role.SITE, begun.name):
        what = f"{join} is for the {joined.role.value} {joined.name}, and {path} names the site {begun.name}"
        raise RequestError(Code.CONFLICT, f"{what}. Take a join file for it, {ELSEWHERE}")


@contextmanager
def naming_progress(path: Path, again: Sequence[str | Path], join: Path | None) -> Iterator[None]:
    """Add to an error of the block, or to its interruption, what is done and the command `again` that goes
    on, with a join file if the site is not enrolled."""
    try:
        yield
    except (KeyboardInterrupt, click.Abort) as stopped:
        errors.print()  # the line of a prompt ends
        raise click.Abort(f"interrupted\n{_done(path, again, join)}") from stopped
    except EigenveilError as problem:
        # A used or unknown token cannot be used again.
        usable = Path("FILE") if join is not None and problem.code is Code.IDENTITY else join
        problem.args = (f"{problem}\n{_done(path, again, usable)}",)
        raise


def _done(path: Path, again: Sequence[str | Path], join: Path | None) -> str:
    done = [f"{path} is written"]
    try:
        loaded = site_config.load(path)
        if folder_identity(loaded.identity) is not None:
            stored, join = load_identity(loaded.identity), None
            done.append(f"enrolled as {stored.identity.uri}, SHA-256 of the key {stored.key_print}")
        if is_counted(loaded):
            done.append("the number of persons is noised and charged, and is not charged again")
    except EigenveilError as problem:  # the first error is told as well
        done.append(str(problem))
    command = shell_command(*again, *(() if join is None else ("--join", join)))
    return f"done: {'; '.join(done)}\nto go on: {command}"
