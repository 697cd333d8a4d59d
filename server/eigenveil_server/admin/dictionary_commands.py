"""`eigenveil-coordinator dictionary`: what the columns of a federation mean, in versions [R22]."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenveil_common.command import FILE, say
from eigenveil_common.config import load
from eigenveil_server.admin.options import config_option, json_option
from eigenveil_server.config import Config

if TYPE_CHECKING:
    from eigenveil_server.storage.directory import Published


@click.group()
def dictionary() -> None:
    """The federation's data dictionary: units and public bounds that studies take from it."""


@dictionary.command()
@click.argument("file", metavar="DICTIONARY.toml", type=FILE)
@config_option
@json_option
def publish(file: Path, config_path: Path, as_json: bool) -> None:
    """Sign DICTIONARY.toml with the release key and put it in force, also beside a serving coordinator.

    Its version must be above that of the last one. Studies that were submitted keep the bounds they have.
    """
    from contextlib import closing

    from eigenveil.dictionary.signed import sign_dictionary
    from eigenveil.dictionary.toml import parse_dictionary
    from eigenveil_common.files import read_text
    from eigenveil_server.clock import unix_ms
    from eigenveil_server.pki.keys import load_keys
    from eigenveil_server.storage import directory
    from eigenveil_server.storage.database import existing_store

    config, found = load(config_path, Config), parse_dictionary(read_text(file))
    signed = sign_dictionary(found, config.federation, load_keys(config.files).release.sign)
    with closing(existing_store(config)) as store, store.writer.transaction() as change:
        directory.publish(change, found, signed, unix_ms())
    value = {"dictionary": found.name, "version": found.version, "columns": len(found.columns)}
    say(value, as_json, f"{found.name}, version {found.version}, is in force: {len(found.columns)} columns.")


@dictionary.command()
@config_option
@click.option("--version", type=click.IntRange(1), help="An earlier one [default: the one in force].")
@json_option
def show(config_path: Path, version: int | None, as_json: bool) -> None:
    """Print a published dictionary as TOML, as it could be published again under a higher version."""
    from eigenveil.dictionary.toml import dictionary_to_dict, dictionary_to_toml
    from eigenveil.errors import Code, RequestError

    rows = [one for one in _published(config_path) if version in (None, one.version)]
    if not rows:
        raise RequestError(Code.NOT_FOUND, "no such dictionary was published; see `dictionary history`")
    _, found = rows[-1].signed.read()
    say(dictionary_to_dict(found), as_json, dictionary_to_toml(found))


@dictionary.command()
@config_option
@json_option
def history(config_path: Path, as_json: bool) -> None:
    """Every version that was published, oldest first."""
    rows = [_row(one) for one in _published(config_path)]
    lines = [f"{r['published']}  version {r['version']}  {r['name']}, {r['columns']} columns" for r in rows]
    say({"dictionaries": rows}, as_json, "\n".join(lines) or "No dictionary was published yet.")


def _published(config_path: Path) -> list[Published]:
    from contextlib import closing

    from eigenveil_server.storage import directory
    from eigenveil_server.storage.database import existing_store

    with closing(existing_store(load(config_path, Config))) as store:
        return directory.history(store.reader)


def _row(one: Published) -> dict[str, Any]:
    from eigenveil.dictionary.toml import dictionary_digest
    from eigenveil_server.clock import as_datetime

    _, found = one.signed.read()
    return {
        "version": one.version,
        "name": found.name,
        "columns": len(found.columns),
        "digest": dictionary_digest(found),
        "published": as_datetime(one.at).isoformat(timespec="seconds"),
    }
