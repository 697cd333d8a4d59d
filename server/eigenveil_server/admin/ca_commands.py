"""eigenveil-coordinator ca: whom the federation trusts, and how that changes without a restart."""

from __future__ import annotations

from pathlib import Path

import click

from eigenveil_common.command import say, typed
from eigenveil_common.config import load
from eigenveil_common.files import read
from eigenveil_server.admin.options import PATH, config_option, json_option
from eigenveil_server.config import Config

signer_option = click.option(
    "--signer",
    "signer_paths",
    type=PATH,
    multiple=True,
    help="Certificate (PEM) of a root that signs the lists to come; once for each. All who sign, anew.",
)
threshold_option = click.option(
    "--threshold", default=1, show_default=True, help="How many of the --signer must sign."
)
anyway_option = click.option("--anyway", is_flag=True, help="Also if somebody is shut out by it.")


@click.group()
def ca() -> None:
    """The federation's certificate authority, and its succession.

    rotate (or csr, then import), switch, retire: in this order, each when `show` says that everybody has
    followed. The coordinator may serve meanwhile; no enrolled site needs a restart or a
    new join file; join files that were not used before `switch` must be made again.

    Whom to trust is a list that those sign who were trusted before. If their keys are elsewhere, the next
    list waits in authorities.draft: sign it there (sign), bring the signatures back (accept).
    """


@ca.command()
@config_option
@json_option
def show(config_path: Path, as_json: bool) -> None:
    """Which authorities are trusted, which one issues, and who has not followed yet."""
    from eigenveil_server.admin import succession

    succession.tell(load(config_path, Config), as_json)


@ca.command()
@config_option
@json_option
def rotate(config_path: Path, as_json: bool) -> None:
    """Make the next authority, its own root. It is trusted from now on; the old one still issues."""
    from eigenveil_server.admin import succession
    from eigenveil_server.pki import rollover

    config = load(config_path, Config)
    succession.tell_change(config, config_path, rollover.rotate(config), as_json)


@ca.command()
@config_option
@click.option("--out", type=PATH, required=True, help="Where to write the request.")
@json_option
def csr(config_path: Path, out: Path, as_json: bool) -> None:
    """Ask an authority elsewhere, such as an offline root, to sign the next one; its key is made here."""
    from eigenveil_server.pki import rollover

    rollover.request(load(config_path, Config), out)
    say(
        {"request": str(out)},
        as_json,
        f"Wrote {out}. Have it signed as a CA (CA:TRUE, path length 0, keyCertSign), then:\n"
        + typed("eigenveil-coordinator", "ca", "import", "--config", config_path, "--cert", "FILE"),
    )


@ca.command(name="import")
@config_option
@click.option("--cert", type=PATH, required=True, help="What came back, PEM.")
@signer_option
@threshold_option
@json_option
def import_(
    config_path: Path, cert: Path, signer_paths: tuple[Path, ...], threshold: int, as_json: bool
) -> None:
    """Trust the authority whose certificate came back for `csr`, or for `init --csr`; an old one still
    issues."""
    from eigenveil_server.admin import succession
    from eigenveil_server.pki import rollover

    config = load(config_path, Config)
    in_force = rollover.take(config, cert, succession.signers(signer_paths, threshold))
    succession.tell_change(config, config_path, in_force, as_json)


@ca.command()
@config_option
@signer_option
@threshold_option
@json_option
def extend(config_path: Path, signer_paths: tuple[Path, ...], threshold: int, as_json: bool) -> None:
    """Make the list of authorities anew, for another year; with --signer, others sign from now on."""
    from eigenveil_server.admin import succession
    from eigenveil_server.pki import rollover

    config = load(config_path, Config)
    in_force = rollover.extend(config, succession.signers(signer_paths, threshold))
    succession.tell_change(config, config_path, in_force, as_json)


@ca.command()
@click.option("--draft", type=PATH, required=True, help="The authorities.draft.")
@click.option("--key", type=PATH, required=True, help="The root's secret key, PEM.")
@click.option("--out", type=PATH, required=True, help="Where to write the signature.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def sign(draft: Path, key: Path, out: Path, yes: bool, as_json: bool) -> None:
    """Sign a draft where the root's key is kept: no network, no coordinator.

    It shows the fingerprints first; --json asks nobody: add --yes. `openssl dgst -sha256 -sign KEY -out
    SIGNATURE authorities.draft` does the same, also with a passphrase.
    """
    from eigenveil_server.pki import rollover
    from eigenveil_server.pki.lists import list_of_draft

    if as_json and not yes:
        raise click.UsageError("--json asks nobody; read the draft, then add --yes")
    shown = list_of_draft(read(draft))
    if not yes:
        click.echo(shown.text())
        if not click.confirm("Sign this list?"):
            return
    rollover.sign_draft(shown, key, out)
    say({"signature": str(out), "list": shown.as_dict()}, as_json, f"Wrote {out}.")


@ca.command()
@config_option
@click.option("--signature", type=PATH, multiple=True, required=True, help="Once for each.")
@json_option
def accept(config_path: Path, signature: tuple[Path, ...], as_json: bool) -> None:
    """Put the draft in force by the signatures that were brought back."""
    from eigenveil_server.admin import succession
    from eigenveil_server.pki import rollover

    config = load(config_path, Config)
    rollover.accept(config, signature)
    succession.tell(config, as_json)


@ca.command()
@config_option
@anyway_option
@json_option
def switch(config_path: Path, anyway: bool, as_json: bool) -> None:
    """Issue with the new authority from now on; the old one stays trusted."""
    from eigenveil_server.admin import succession
    from eigenveil_server.pki import rollover

    config = load(config_path, Config)
    rollover.switch(config, anyway=anyway)
    succession.tell(config, as_json)


@ca.command()
@config_option
@anyway_option
@json_option
def retire(config_path: Path, anyway: bool, as_json: bool) -> None:
    """Trust the old authority no more, and delete its key."""
    from eigenveil_server.admin import succession
    from eigenveil_server.pki import rollover

    config = load(config_path, Config)
    succession.tell_change(config, config_path, rollover.retire(config, anyway=anyway), as_json)
