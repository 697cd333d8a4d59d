"""`eigenveil verify` and `eigenveil report`: a release, offline."""

from __future__ import annotations

from pathlib import Path

import click

from eigenveil_client.analyst.options import json_option, profile_option
from eigenveil_common.command import FILE, errors, say
from eigenveil_common.files import check_output, read, write_durably

UNKNOWN = (
    "NOT VERIFIED: it is as somebody signed it, and nothing here says whose key that is; pass the "
    "federation's with --key"
)
UNKNOWN_SIGNER = 14

release_argument = click.argument("release", metavar="release.json", type=FILE)


@click.command()
@release_argument
@click.option(
    "--key", metavar="HEX|FILE", help="The federation's release key, or an authorities.json that holds it."
)
@click.option(
    "--log",
    "log_file",
    type=FILE,
    help="Signed rounds of the study, from `eigenveil study log` or a site: recompute what they lead to.",
)
@click.option("--any-key", is_flag=True, help="Be content that it is as somebody signed it: exit code 0.")
@profile_option
@json_option
def verify(
    release: Path, key: str | None, log_file: Path | None, any_key: bool, profile: Path | None, as_json: bool
) -> int:
    """Check a release without a network. Exit code 13 if one byte is not as it was signed.

    With --log every question is computed again from the plan and the releases before it, and the result from
    all of them; exit code 13 too if the release does not follow from what was signed.

    The signature of the analyst who asked for it is checked too, against its plan, and the digits of that key
    are shown: whose they are, the analyst says, by telephone. A release in your own name should be signed by
    the key that you have now; if it is not, that is said ("own_key" with --json), and the exit code stays.

    Who signed it is checked with --key, or else by your profile, if that is of the release's federation.
    Where neither says whose key it should be, anybody may have signed it: exit code 14, or 0 with --any-key.
    """
    from eigenveil.reporting.explain import promised
    from eigenveil.reporting.verify import load_release, verify_release
    from eigenveil_client.analyst.releases.verify import (
        check_log,
        describe_analyst,
        profile_key,
        read_key,
        trust_told,
    )

    if any_key and key is not None:
        raise click.UsageError("--any-key asks for no key, and --key gives one; leave out one of them")
    signed = load_release(read(release))
    federation = signed.document["plan"]["federation"]
    trusted = profile_key(profile, federation) if key is None else read_key(key)
    if trusted is not None:
        verify_release(signed, trusted)
    document, public_key = signed.document, signed.public_key.hex()
    asker, asked = describe_analyst(document, profile)
    value = {
        "intact": True,
        "key_checked": trusted is not None,
        "public_key": public_key,
        "private": document["private"],
        "plan_digest": document["plan_digest"],
        "name": document["plan"]["study"]["name"],
        "federation": federation,
        "asked_by": asker,
        "guarantee": promised(document),
        "trust": trust_told(document),
        "log": None if log_file is None else check_log(signed, log_file),
    }
    told = "the key you gave" if key is not None else "your profile's key of this federation"
    text = (
        f"{value['name']} of federation {federation}, plan {document['plan_digest'][:12]}, "
        f"signed by {told if trusted else public_key}.\n{asked}\n"
        f"{value['guarantee']['words']}\n"
        f"Trust: {value['trust']}."
    )
    if value["log"] is not None:
        text += f"\n{value['log']['words']}"
    say(value, as_json, f"{UNKNOWN}.\n{text}" if trusted is None else f"Intact: {text}")
    return UNKNOWN_SIGNER if trusted is None and not any_key else 0


@click.command()
@release_argument
@click.option("--out", type=FILE, default=Path("report.html"), show_default=True)
@profile_option
@json_option
def report(release: Path, out: Path, profile: Path | None, as_json: bool) -> None:
    """Write the report of a release as one HTML file.

    Who signed the release is checked if your profile is of its federation; `eigenveil verify` tells.
    """
    from eigenveil.reporting.report import render
    from eigenveil.reporting.verify import load_release, verify_release
    from eigenveil_client.analyst.releases.verify import profile_key

    check_output(out, release)
    signed = load_release(read(release))
    trusted = profile_key(profile, signed.document["plan"]["federation"])
    if trusted is not None:
        verify_release(signed, trusted)
    page = render(signed.document, public_key=signed.public_key.hex())
    write_durably(out, page.encode())
    if trusted is None:
        sentence = "whose signature this release bears was not checked: eigenveil verify --key"
        errors.print(f"warning: {sentence}", style="yellow", markup=False)
    say({"report": str(out), "key_checked": trusted is not None}, as_json, str(out))


COMMANDS = (verify, report)
