"""`eigenveil verify` and `eigenveil report`: a release, offline."""

from __future__ import annotations

from pathlib import Path

import click

from eigenveil.errors import Code, RequestError
from eigenveil_client.analyst_cli import default_profile, json_option, profile_option
from eigenveil_client.identity_store import pinned
from eigenveil_client.verify import read_key, verified
from eigenveil_common.command import say
from eigenveil_common.files import check_output, write_durably

release_argument = click.argument(
    "release", metavar="release.json", type=click.Path(path_type=Path, dir_okay=False)
)


@click.command()
@release_argument
@click.option(
    "--key", metavar="HEX|FILE", help="The federation's release key, or an authorities.json that holds it."
)
@profile_option
@json_option
def verify(release: Path, key: str | None, profile: Path | None, as_json: bool) -> None:
    """Check a release without a network. Exit code 13 if one byte is not as it was signed.

    Who signed it is checked with --key, or else by your profile, if that is of the release's federation.
    """
    federation = verified(release)["document"]["plan"]["federation"]
    trusted = profile_key(profile, federation) if key is None else read_key(key)
    bundle = verified(release, trusted)
    document = bundle["document"]
    value = {
        "intact": True,
        "key_checked": trusted is not None,
        "public_key": bundle["public_key"],
        "private": document["private"],
        "plan_digest": document["plan_digest"],
        "name": document["plan"]["study"]["name"],
        "federation": federation,
        "guarantee": document["guarantee"],
    }
    told = "the key you gave" if key is not None else "your profile's key of this federation"
    unknown = f"{bundle['public_key']}: compare this with the federation's key, or pass --key"
    text = (
        f"Intact: {value['name']} of federation {federation}, plan {document['plan_digest'][:12]}, "
        f"signed by {unknown if trusted is None else told}.\n{document['guarantee']['words']}"
    )
    say(value, as_json, text)


def profile_key(profile: Path | None, federation: str) -> bytes | None:
    """The release key that the profile trusts; None if the default profile is not of `federation`.

    Raises:
        RequestError: the profile that was asked for is not of `federation`, or is damaged.
    """
    found = pinned(profile or default_profile())
    if found is not None and found[0].federation == federation:
        return found[1]
    if profile is not None:
        raise RequestError(Code.BAD_ARGUMENT, f"{profile} holds no identity of federation {federation}")
    return None


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
