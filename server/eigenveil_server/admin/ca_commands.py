"""Commands `eigenveil-coordinator ca` and `release-key`: the trusted authorities and their rotation without a
restart, and a new release key."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from eigenveil_common.command import print_result, shell_command
from eigenveil_common.config import load
from eigenveil_common.files import read
from eigenveil_server.admin.commands import PATH, config_option, json_option
from eigenveil_server.config import Config

signer_option = click.option(
    "--signer",
    "signer_paths",
    type=PATH,
    multiple=True,
    help="Certificate (PEM) of a root that signs future lists; repeat for each. Replaces all signers.",
)
threshold_option = click.option(
    "--threshold", default=1, show_default=True, help="Number of signers that must sign a list."
)
anyway_option = click.option("--anyway", is_flag=True, help="Also if a participant loses access.")


@click.group()
def ca() -> None:
    """The federation's certificate authority, and its rotation.

    Run rotate (or csr, then import), switch and retire in this order, each once `show` reports that all
    clients have followed. The coordinator may serve meanwhile. Enrolled sites need neither a restart
    nor a new join file; join files not used before `switch` must be made again.

    The trusted authorities are a list, signed by those trusted before. If their keys are on another machine,
    the next list waits in authorities.draft: sign it there (sign) and bring the signatures back (accept)."""


@ca.command()
@config_option
@json_option
def show(config_path: Path, as_json: bool) -> None:
    """Show the trusted authorities, the issuing one, and the clients that have not followed yet."""
    _report_rotation(load(config_path, Config), as_json)


@ca.command()
@config_option
@json_option
def rotate(config_path: Path, as_json: bool) -> None:
    """Create the next authority as its own root. It is trusted from now on; the old one still issues."""
    from eigenveil_server.pki import rotation

    _report_change(config_path, rotation.rotate, as_json)


@ca.command()
@config_option
@click.option("--out", type=PATH, required=True, help="File for the request.")
@json_option
def csr(config_path: Path, out: Path, as_json: bool) -> None:
    """Create the next authority's key, and a request to be signed by an authority such as an offline root."""
    from eigenveil_server.pki import rotation

    rotation.request(load(config_path, Config), out)
    print_result(
        {"request": str(out)},
        as_json,
        f"Wrote {out}. Have it signed as a CA (CA:TRUE, path length 0, keyCertSign), then:\n"
        + shell_command("eigenveil-coordinator", "ca", "import", "--config", config_path, "--cert", "FILE"),
    )


@ca.command(name="import")
@config_option
@click.option("--cert", type=PATH, required=True, help="The signed certificate (PEM).")
@signer_option
@threshold_option
@json_option
def import_(
    config_path: Path, cert: Path, signer_paths: tuple[Path, ...], threshold: int, as_json: bool
) -> None:
    """Trust the authority whose certificate was signed for `csr` or `init --csr`; an old one still
    issues."""
    from eigenveil_server.pki import rotation

    signers = rotation.Signers.read(signer_paths, threshold)
    _report_change(config_path, lambda config: rotation.import_authority(config, cert, signers), as_json)


@ca.command()
@config_option
@signer_option
@threshold_option
@json_option
def extend(config_path: Path, signer_paths: tuple[Path, ...], threshold: int, as_json: bool) -> None:
    """Renew the list of authorities for another year; --signer changes its signers."""
    from eigenveil_server.pki import rotation

    signers = rotation.Signers.read(signer_paths, threshold)
    _report_change(config_path, lambda config: rotation.extend(config, signers), as_json)


@ca.command()
@click.option("--draft", type=PATH, required=True, help="The authorities.draft.")
@click.option("--key", type=PATH, required=True, help="The root's secret key, PEM.")
@click.option("--out", type=PATH, required=True, help="File for the signature.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def sign(draft: Path, key: Path, out: Path, yes: bool, as_json: bool) -> None:
    """Sign a draft on the machine with the root's key, without network and coordinator.

    Shows the fingerprints first. --json needs --yes, since it cannot ask. `openssl dgst -sha256 -sign KEY
    -out SIGNATURE authorities.draft` does the same, also with a passphrase."""
    from eigenveil_server.pki import rotation
    from eigenveil_server.pki.authority_lists import parse_draft

    if as_json and not yes:
        raise click.UsageError("--json cannot ask for confirmation; read the draft, then add --yes")
    shown = parse_draft(read(draft))
    if not yes:
        click.echo(shown.text())
        if not click.confirm("Sign this list?"):
            return
    rotation.sign_draft(shown, key, out)
    print_result({"signature": str(out), "list": shown.as_dict()}, as_json, f"Wrote {out}.")


@ca.command()
@config_option
@click.option("--signature", type=PATH, multiple=True, required=True, help="Repeat for each signature.")
@json_option
def accept(config_path: Path, signature: tuple[Path, ...], as_json: bool) -> None:
    """Put the draft in force with the signatures from the other machine."""
    from eigenveil_server.pki import rotation

    config = load(config_path, Config)
    rotation.accept(config, signature)
    _report_rotation(config, as_json)


@ca.command()
@config_option
@anyway_option
@json_option
def switch(config_path: Path, anyway: bool, as_json: bool) -> None:
    """Issue certificates with the new authority from now on; the old one stays trusted."""
    from eigenveil_server.pki import rotation

    config = load(config_path, Config)
    rotation.switch(config, anyway=anyway)
    _report_rotation(config, as_json)


@ca.command()
@config_option
@anyway_option
@json_option
def retire(config_path: Path, anyway: bool, as_json: bool) -> None:
    """Stop trusting the old authority, and delete its key."""
    from eigenveil_server.pki import rotation

    _report_change(config_path, partial(rotation.retire, anyway=anyway), as_json)


def _report_rotation(config: Config, as_json: bool) -> None:
    from eigenveil_server.pki.authority_lists import rotation_status

    found = rotation_status(config)
    print_result(found.as_dict(), as_json, found.text())


def _report_change(
    config_path: Path,
    change: Callable[[Config], bool],
    as_json: bool,
    accept: tuple[str, ...] = ("ca", "accept"),
    first: str = "",
) -> None:
    """Make a change. Print the rotation status, or the list to sign on another machine, and the command that
    brings the signatures, `first` before it."""
    from eigenveil_server.pki.authority_lists import AuthorityListStore

    config = load(config_path, Config)
    if change(config) or (draft := AuthorityListStore(config.files).draft) is None:
        _report_rotation(config, as_json)
        return
    print_result(
        {"draft": str(config.files.draft), "list": draft.as_dict()},
        as_json,
        f"{draft.text()}\nNot in force yet: it needs signatures by keys on another machine. "
        f"Copy {config.files.draft} there, then run:\neigenveil-coordinator ca sign --draft FILE --key KEY "
        f"--out SIGNATURE\nand here{first}:\n"
        + shell_command("eigenveil-coordinator", *accept, "--config", config_path, "--signature", "FILE"),
    )


@ca.command()
@config_option
@click.argument("address", nargs=-1)
@anyway_option
@json_option
def addresses(config_path: Path, address: tuple[str, ...], anyway: bool, as_json: bool) -> None:
    """Announce where the coordinator is reached, as HOST:PORT, the first ADDRESS first.

    To move it: announce the present and the new one; wait until `show` reports that every participant has the
    list; stop, back up and restore there, state the new host in coordinator.toml, and start; then announce
    the new one alone. Nobody enrols again."""
    from eigenveil_server.pki import rotation

    _report_change(
        config_path, partial(rotation.announce_addresses, addresses=address, anyway=anyway), as_json
    )


@click.group(name="release-key")
def release_key() -> None:
    """The key that signs plans, checkpoints and releases, and its successor.

    Run prepare; wait until `show` reports that every participant has the list; stop the coordinator, run
    switch, and start it. Nobody enrols again, running studies go on, and what the old key signed stays
    verifiable. If the old key was stolen, do all of it today: until the switch the thief signs as you do."""


@release_key.command(name="show")
@config_option
@json_option
def show_release_keys(config_path: Path, as_json: bool) -> None:
    """Show the release keys, and the clients that do not know the latest list yet."""
    from eigenveil_server.pki import release_keys

    found = release_keys.status(load(config_path, Config))
    print_result(found, as_json, release_keys.status_text(found))


@release_key.command()
@config_option
@click.option("--replace", "replacing", is_flag=True, help="In place of a key that is announced already.")
@json_option
def prepare(config_path: Path, replacing: bool, as_json: bool) -> None:
    """Make the next release key and announce it; the old one still signs. The coordinator may serve."""
    from eigenveil_server.pki import release_keys

    _report_change(config_path, partial(release_keys.prepare, replacing=replacing), as_json)


@release_key.command(name="switch")
@config_option
@click.option(
    "--signature",
    type=PATH,
    multiple=True,
    help="Signature of the waiting list by another machine's key. May be repeated.",
)
@anyway_option
@json_option
def switch_release_key(config_path: Path, signature: tuple[Path, ...], anyway: bool, as_json: bool) -> None:
    """Sign with the announced key from now on, and delete the old one. Stop the coordinator first.

    Make a new backup afterwards: a coordinator from an earlier one has lists that nobody accepts any more."""
    from eigenveil_server.pki import release_keys

    signatures = [read(path) for path in signature]
    change = partial(release_keys.switch, signatures=signatures, anyway=anyway)
    _report_change(config_path, change, as_json, ("release-key", "switch"), ", with the coordinator stopped")
