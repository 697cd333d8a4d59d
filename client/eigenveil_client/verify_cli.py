"""`eigenveil verify` and `eigenveil report`: a release, offline."""

from __future__ import annotations

from pathlib import Path

import click

from eigenveil_client.analyst_cli import json_option
from eigenveil_client.verify import read_key, verified
from eigenveil_common.command import say
from eigenveil_common.files import check_output, write_durably

release_argument = click.argument(
    "release", metavar="release.json", type=click.Path(path_type=Path, dir_okay=False)
)


@click.command()
@release_argument
@click.option(
    "--key", metavar="HEX|FILE", help="The federation's release key: without it only intactness is shown."
)
@json_option
def verify(release: Path, key: str | None, as_json: bool) -> None:
    """Check a release without a network. Exit code 13 if one byte is not as it was signed."""
    bundle = verified(release, None if key is None else read_key(key))
    document = bundle["document"]
    value = {
        "intact": True,
        "key_checked": key is not None,
        "public_key": bundle["public_key"],
        "private": document["private"],
        "plan_digest": document["plan_digest"],
        "name": document["plan"]["study"]["name"],
        "federation": document["plan"]["federation"],
        "guarantee": document["guarantee"],
    }
    signer = (
        "by the key you gave"
        if key is not None
        else f"by {bundle['public_key']}: compare this with the federation's key, or pass --key"
    )
    text = (
        f"Intact: {value['name']} of federation {value['federation']}, plan {document['plan_digest'][:12]}, "
        f"signed {signer}.\n{document['guarantee']['words']}"
    )
    say(value, as_json, text)


@click.command()
@release_argument
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("report.html"), show_default=True
)
@json_option
def report(release: Path, out: Path, as_json: bool) -> None:
    """Write the report of a release as one HTML file."""
    from eigenveil.report import render  # drawing takes a second to import

    check_output(out, release)
    bundle = verified(release)
    page = render(bundle["document"], public_key=bundle["public_key"])
    write_durably(out, page.encode())
    say({"report": str(out)}, as_json, str(out))
