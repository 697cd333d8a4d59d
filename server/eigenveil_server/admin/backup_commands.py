"""eigenveil-coordinator backup, restore, restored, checkpoints, accept-loss."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import click

from eigenveil.errors import Code, RequestError
from eigenveil_common.command import console, say, typed
from eigenveil_common.config import load
from eigenveil_server.admin.options import PATH, json_option
from eigenveil_server.config import CONFIG_NAME, Config

config_option = click.option(
    "--config", "config_path", required=True, type=PATH, help="The coordinator.toml."
)
without_option = click.option(
    "--without", "gone", multiple=True, metavar="SITE",
    help="A site that is gone and whose checkpoint is not waited for. May be repeated.",
)  # fmt: skip


def _then(waiting: list[str], config: Path) -> str:
    return (
        f"It will wait for the checkpoints of: {', '.join(waiting) or 'nobody'}\n"
        "Forgotten is what happened since: deny again whoever must stay out; whoever enrolled or renewed a "
        "certificate since then needs a new join file, and join files that were not used yet work no more.\n"
        f"Next: {typed('eigenveil-coordinator', 'serve', '--config', config)}"
    )


def _teller(as_json: bool) -> Callable[[str], None]:
    return (lambda text: None) if as_json else (lambda text: console.print(text, markup=False))


@click.command()
@config_option
@click.option("--out", required=True, type=PATH, help="A new folder.")
@json_option
def backup(config_path: Path, out: Path, as_json: bool) -> None:
    """Copy database, keys and configuration into a new folder; serving goes on meanwhile.

    The copy's ledger is replayed. Keep the folder as safe as the coordinator: it holds all its keys.
    """
    from eigenveil_server.recovery.backup import back_up

    made = back_up(config_path, load(config_path, Config), out, _teller(as_json))
    told = {"backup": str(out), "rows": made.rows, "head": made.head, "files": len(made.files)}
    text = f"Wrote {out}: the ledger has {made.rows} rows, checkpoint {made.head[:16]}"
    say(told, as_json, text)


@click.command(name="restore")
@click.option("--from", "source", required=True, type=PATH, help="A backup.")
@click.option("--dir", "folder", required=True, type=PATH, help="A new folder.")
@without_option
@json_option
def restore_command(source: Path, folder: Path, gone: tuple[str, ...], as_json: bool) -> None:
    """Make a coordinator from a backup, in a new folder.

    It opens no round before every enrolled site has shown the last checkpoint of the ledger that it saw.
    Never serve it beside the one that was backed up.
    """
    from eigenveil_server.recovery.backup import restore

    manifest, waiting = restore(source, folder, gone, _teller(as_json))
    config = folder / CONFIG_NAME
    told = {"config": str(config), "made": manifest.made, "rows": manifest.rows, "awaited": waiting}
    text = f"Restored {manifest.federation} as of {manifest.made} into {folder}.\n{_then(waiting, config)}"
    say(told, as_json, text)


@click.command(name="restored")
@config_option
@without_option
@json_option
def restored_command(config_path: Path, gone: tuple[str, ...], as_json: bool) -> None:
    """Say that the database was put back by its own tools (pg_restore, a snapshot of a disk).

    As after `restore`, no round is then opened before every enrolled site has shown the last checkpoint of
    the ledger that it saw. The coordinator must not be serving.
    """
    from eigenveil_server.recovery.backup import restored

    ledger, waiting = restored(load(config_path, Config), gone)
    told = {"rows": ledger.size, "head": ledger.head, "awaited": waiting}
    text = f"The ledger is whole: {ledger.size} rows, head {ledger.head[:16]}\n{_then(waiting, config_path)}"
    say(told, as_json, text)


@click.command()
@config_option
@without_option
@json_option
def checkpoints(config_path: Path, gone: tuple[str, ...], as_json: bool) -> None:
    """Show which sites' checkpoints are awaited since a restore; with --without, wait for a site no more.

    Works whether or not the coordinator is serving.
    """
    from eigenveil_server.clock import unix_ms
    from eigenveil_server.recovery.checkpoints import awaited, stop_waiting
    from eigenveil_server.storage.database import existing_store

    with closing(existing_store(load(config_path, Config))) as store:
        strange = sorted(set(gone) - set(awaited(store.reader)))
        if strange:
            raise RequestError(Code.NOT_FOUND, f"not waited for: {', '.join(strange)}")
        for site in gone:
            with store.writer.transaction() as change:
                stop_waiting(change, unix_ms(), site, "given up")
        waiting = awaited(store.reader)
    text = f"Waiting for the checkpoints of: {', '.join(waiting)}" if waiting else "No checkpoint is awaited."
    say({"awaited": waiting}, as_json, text)


@click.command(name="accept-loss")
@config_option
@json_option
def accept_loss_command(config_path: Path, as_json: bool) -> None:
    """Go on although a site has seen a later ledger: charge what that one spent, end what runs.

    Only when there is no newer backup. Each site's operator must then agree, too.
    """
    from eigenveil.accounting.budget import Conversion
    from eigenveil_server.recovery.accept_loss import accept_loss

    config = load(config_path, Config)
    accepted = accept_loss(config)
    charged = Conversion(delta=config.budget_delta, exact=False).spent(accepted.charged.micro_rho)
    told = {
        "site": accepted.site,
        "rows": accepted.checkpoint.size,
        "charged_micro_rho": accepted.charged.micro_rho,
        "charged_atto_delta": str(accepted.charged.atto_delta),
        "ended": list(accepted.ended),
        "awaited": list(accepted.awaited),
    }
    giving_up = typed("eigenveil-coordinator", "checkpoints", "--config", config_path, "--without", "SITE")
    text = (
        f"Charged {charged} for what site {accepted.site} has seen; "
        f"{len(accepted.ended)} studies ended.\nEach site now stops at the shorter ledger until its operator "
        "runs: eigenveil-site accept-checkpoint --config site.toml\n"
        "No round is opened before these sites have shown what they have seen, and this may be to repeat "
        f"for another of them: {', '.join(accepted.awaited)}. For one that is gone: {giving_up}"
    )
    say(told, as_json, text)


COMMANDS = (backup, restore_command, restored_command, checkpoints, accept_loss_command)
