"""Operator's commands for backups and for the data dictionary, and options that several commands share.
`eigenveil-coordinator dictionary` shows and publishes versions of the data dictionary [R22]."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eigenveil.errors import Code, RequestError
from eigenveil_common.command import FILE, console, print_result, shell_command
from eigenveil_common.config import load
from eigenveil_server.config import CONFIG_NAME, Config

if TYPE_CHECKING:
    from eigenveil_server.storage.directory import PublishedDictionary

PATH = click.Path(path_type=Path)
config_option = click.option(
    "--config", "config_path", required=True, type=PATH, help="The coordinator.toml that init wrote."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
without_option = click.option(
    "--without", "gone", multiple=True, metavar="SITE",
    help="A site that has left, whose checkpoint is not awaited. May be repeated.",
)  # fmt: skip


def _next_steps(waiting: list[str], config: Path) -> str:
    return (
        f"It will wait for the checkpoints of: {', '.join(waiting) or 'no site'}\n"
        "Changes since the backup are lost: repeat denials, and make new join files for all who enrolled or "
        "renewed a certificate since. Unused join files no longer work.\n"
        f"Next: {shell_command('eigenveil-coordinator', 'serve', '--config', config)}"
    )


def _progress_printer(as_json: bool) -> Callable[[str], None]:
    return (lambda text: None) if as_json else (lambda text: console.print(text, markup=False))


@click.command()
@config_option
@click.option("--out", required=True, type=PATH, help="A new folder.")
@json_option
def backup(config_path: Path, out: Path, as_json: bool) -> None:
    """Copy database, keys and configuration into a new folder, also while serving.

    The copied ledger is checked. Protect the folder like the coordinator: it contains all its keys."""
    from eigenveil_server.recovery.backup import back_up

    made = back_up(config_path, load(config_path, Config), out, _progress_printer(as_json))
    rows, head = made.ledger["rows"], made.ledger["head"]
    summary = {"backup": str(out), "rows": rows, "head": head, "files": len(made.files)}
    text = f"Wrote {out}: the ledger has {rows} rows, checkpoint {head[:16]}"
    print_result(summary, as_json, text)


@click.command(name="restore")
@click.option("--from", "source", required=True, type=PATH, help="A backup.")
@click.option("--dir", "folder", required=True, type=PATH, help="A new folder.")
@without_option
@json_option
def restore_command(source: Path, folder: Path, gone: tuple[str, ...], as_json: bool) -> None:
    """Restore a coordinator from a backup into a new folder.

    It opens no round before every enrolled site has shown its last checkpoint of the ledger.
    Never serve it while the original is serving."""
    from eigenveil_server.recovery.backup import restore

    manifest, waiting = restore(source, folder, gone, _progress_printer(as_json))
    config = folder / CONFIG_NAME
    summary = {"config": str(config), "created_at": manifest.created_at, "rows": manifest.ledger["rows"]}
    summary |= {"awaited_checkpoints": waiting}
    text = f"Restored {manifest.owner} as of {manifest.created_at} into {folder}.\n"
    print_result(summary, as_json, text + _next_steps(waiting, config))


@click.command(name="restored")
@config_option
@without_option
@json_option
def restored_command(config_path: Path, gone: tuple[str, ...], as_json: bool) -> None:
    """Declare that the database was restored by other tools (pg_restore, a disk snapshot).

    As after `restore`, no round is opened before every enrolled site has shown its last checkpoint of the
    ledger. The coordinator must not be serving."""
    from eigenveil_server.recovery.backup import restored

    ledger, waiting = restored(load(config_path, Config), gone)
    summary = {"rows": ledger.size, "head": ledger.head, "awaited_checkpoints": waiting}
    text = f"The ledger is intact: {ledger.size} rows, head {ledger.head[:16]}\n"
    print_result(summary, as_json, text + _next_steps(waiting, config_path))


@click.command()
@config_option
@without_option
@json_option
def checkpoints(config_path: Path, gone: tuple[str, ...], as_json: bool) -> None:
    """Show the sites whose checkpoints are awaited after a restore; --without stops waiting for a site.

    Works also while the coordinator is not serving."""
    from eigenveil_server.process import unix_ms
    from eigenveil_server.recovery.checkpoints import awaited_sites, stop_awaiting
    from eigenveil_server.storage.database import existing_store

    with closing(existing_store(load(config_path, Config))) as store:
        unknown = sorted(set(gone) - set(awaited_sites(store.reader)))
        if unknown:
            raise RequestError(Code.NOT_FOUND, f"no checkpoint is awaited of: {', '.join(unknown)}")
        for site in gone:
            with store.writer.transaction() as change:
                stop_awaiting(change, unix_ms(), site, "given up")
        waiting = awaited_sites(store.reader)
    text = f"Waiting for the checkpoints of: {', '.join(waiting)}" if waiting else "No checkpoint is awaited."
    print_result({"awaited_checkpoints": waiting}, as_json, text)


@click.command(name="accept-loss")
@config_option
@json_option
def accept_loss_command(config_path: Path, as_json: bool) -> None:
    """Continue although a site has seen a newer ledger: charge its spending, and end running studies.

    Use it only without a newer backup. Each site's operator must then accept it, too."""
    from eigenveil.accounting.budget import Conversion
    from eigenveil_server.recovery.accept_loss import accept_loss

    config = load(config_path, Config)
    accepted = accept_loss(config)
    charged = Conversion(delta=config.budget_delta, exact=False).spent(accepted.charged.micro_rho)
    summary = {
        "site": accepted.site,
        "rows": accepted.checkpoint.size,
        "charged_micro_rho": accepted.charged.micro_rho,
        "charged_atto_delta": str(accepted.charged.atto_delta),
        "ended_studies": list(accepted.ended_studies),
        "awaited_checkpoints": list(accepted.awaited),
    }
    without = ("checkpoints", "--config", config_path, "--without", "SITE")
    text = (
        f"Charged {charged} according to the ledger that site {accepted.site} has seen; "
        f"{len(accepted.ended_studies)} studies ended.\nEach site refuses the shorter ledger until its "
        "operator runs: eigenveil-site accept-checkpoint --config site.toml\n"
        "No round is opened before these sites have shown their checkpoints, and a newer one needs this "
        f"command again: {', '.join(accepted.awaited)}. For a site that has left: "
        + shell_command("eigenveil-coordinator", *without)
    )
    print_result(summary, as_json, text)


@click.command(name="upgrade")
@config_option
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--dump", type=PATH, metavar="FILE", help="With PostgreSQL: write the backup here, by pg_dump.")
@click.option("--backed-up", is_flag=True, help="With PostgreSQL: there is a backup already.")
@json_option
def upgrade_command(
    config_path: Path, dry_run: bool, dump: Path | None, backed_up: bool, as_json: bool
) -> None:
    """Upgrade the database to the version that this program needs. Stop the coordinator first.

    With --dry-run it may serve. The command makes a backup beside the database, reads it back, changes the
    tables and checks all that is stored. Whenever it is interrupted, the database is as before. A program of
    an earlier version cannot open it afterwards."""
    from eigenveil_common.files import check_new
    from eigenveil_server.recovery.upgrade import upgrade_database

    if dump is not None:
        check_new(dump)
    done = upgrade_database(load(config_path, Config), dump, backed_up=backed_up, dry_run=dry_run)
    print_result(asdict(done), as_json, done.text())


COMMANDS = (
    backup,
    restore_command,
    restored_command,
    checkpoints,
    accept_loss_command,
    upgrade_command,
)


@click.group()
def dictionary() -> None:
    """The federation's data dictionary: units and public bounds of columns, for studies."""


@dictionary.command()
@click.argument("file", metavar="DICTIONARY.toml", type=FILE)
@config_option
@json_option
def publish(file: Path, config_path: Path, as_json: bool) -> None:
    """Sign DICTIONARY.toml with the release key and put it in force, also while serving.

    Its version must be above that of the last one. Submitted studies keep their bounds."""
    from eigenveil.dictionary.formats import parse_dictionary, sign_dictionary
    from eigenveil_common.files import read_text
    from eigenveil_server.pki.keys import load_keys
    from eigenveil_server.process import unix_ms
    from eigenveil_server.storage import directory
    from eigenveil_server.storage.database import existing_store

    config, found = load(config_path, Config), parse_dictionary(read_text(file))
    signed = sign_dictionary(found, config.federation, load_keys(config.files).release.sign)
    with closing(existing_store(config)) as store, store.writer.transaction() as change:
        directory.publish(change, found, signed, unix_ms())
    value = {"dictionary": found.name, "version": found.version, "columns": len(found.columns)}
    print_result(
        value, as_json, f"{found.name}, version {found.version}, is in force: {len(found.columns)} columns."
    )


@dictionary.command()
@config_option
@click.option("--version", type=click.IntRange(1), help="An earlier version [default: the one in force].")
@json_option
def show(config_path: Path, version: int | None, as_json: bool) -> None:
    """Print a published dictionary as TOML."""
    from eigenveil.dictionary.formats import dictionary_to_dict, dictionary_to_toml

    rows = [one for one in _published(config_path) if version in (None, one.version)]
    if not rows:
        raise RequestError(Code.NOT_FOUND, "no such dictionary was published; see `dictionary history`")
    found = rows[-1].signed.read().dictionary
    print_result(dictionary_to_dict(found), as_json, dictionary_to_toml(found))


@dictionary.command()
@config_option
@json_option
def history(config_path: Path, as_json: bool) -> None:
    """List all published versions, oldest first."""
    from eigenveil.dictionary.formats import dictionary_digest
    from eigenveil_server.process import time_text

    rows = [
        {
            "version": one.version,
            "name": found.name,
            "columns": len(found.columns),
            "digest": dictionary_digest(found),
            "published": time_text(one.at),
        }
        for one in _published(config_path)
        for found in [one.signed.read().dictionary]
    ]
    lines = [f"{r['published']}  version {r['version']}  {r['name']}, {r['columns']} columns" for r in rows]
    print_result({"dictionaries": rows}, as_json, "\n".join(lines) or "No dictionary was published yet.")


def _published(config_path: Path) -> list[PublishedDictionary]:
    from eigenveil_server.storage import directory
    from eigenveil_server.storage.database import existing_store

    with closing(existing_store(load(config_path, Config))) as store:
        return directory.history(store.reader)
