"""release.json on an analyst's disk: check it, and write its report beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.analyst_signature.asked_by import AskedBy, asked_by
from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.identity import Role
from eigenveil.numerics.encoding import parse_json
from eigenveil.reporting.explain import OTHER_WORDS
from eigenveil.reporting.trust import trust_of
from eigenveil.reporting.verify import SignedRelease, load_release, verify_release
from eigenveil_client.analyst.profile import default_profile
from eigenveil_client.analyst.signing.signing_key import SigningKey, made
from eigenveil_client.connection.identity import named, pinned
from eigenveil_common.files import check_output, is_there, make_folder, read, write_durably

KEY = re.compile(r"[0-9a-f]{64}")
PRIVATE_BYTES = 32  # a coordinator's release.key; public keys are written as text
RELEASE = "release.json"
REPORT = "report.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Where a release and its report were written, and what the release says."""

    release: Path
    report: Path
    document: Mapping[str, Any]


def read_key(text: str) -> bytes:
    """A raw Ed25519 public key: 64 hexadecimal digits, or a file of them, as authorities.json is.

    Raises:
        RequestError: neither, or a private key.
    """
    given = text.strip()
    if KEY.fullmatch(given.lower()):
        return bytes.fromhex(given)
    if not os.path.isfile(given):
        raise RequestError(
            Code.BAD_ARGUMENT, f"{given!r} is neither a key of 64 hexadecimal digits nor a file"
        )
    data = read(Path(given))
    if len(data) == PRIVATE_BYTES or b"PRIVATE KEY" in data:
        raise RequestError(
            Code.BAD_ARGUMENT,
            f"{given} holds a private key: it must not leave the coordinator, and verifies nothing; the "
            "public one is shown by: eigenveil-coordinator status --config FILE",
        )
    content = _stated_key(data).strip().lower()
    if KEY.fullmatch(content):
        return bytes.fromhex(content)
    raise RequestError(Code.BAD_ARGUMENT, f"{given} holds no Ed25519 public key (64 hexadecimal digits)")


def _stated_key(data: bytes) -> str:
    """The text of a key's file: all of it, or what an authorities.json says of the release key."""
    text = data.decode("utf-8-sig", errors="replace")
    try:
        return str(parse_json(text)["release_key"])
    except (ValueError, KeyError, TypeError):
        return text


def check_folder(folder: Path, ours: Callable[[Mapping[str, Any]], bool]) -> None:
    """Make `folder`, and see that it holds no release but one whose document is `ours`.

    Raises:
        InternalError: code `storage`, the folder cannot be written.
        RequestError: code `conflict`, another release would be replaced.
    """
    make_folder(folder)
    release = folder / RELEASE
    for path in (release, folder / REPORT):
        check_output(path)
    if not is_there(release):
        return
    try:
        document = load_release(read(release)).document
    except RequestError as problem:
        raise _occupied(release, "is no intact release") from problem
    if not ours(document):
        study = f"{document['plan']['study']['name']} ({document['plan_digest'][:12]})"
        raise _occupied(release, f"is the release of another study, {study}")


def _occupied(path: Path, what: str) -> RequestError:
    return RequestError(Code.CONFLICT, f"{path} {what}; name another folder with --out")


def write_result(data: bytes, folder: Path) -> Written:
    """Write an intact release.json and its report.html into `folder`; the same study's are replaced.

    Raises:
        InternalError, RequestError: as `check_folder`.
    """
    # Drawing takes a second to import; commands that only verify do not pay for it.
    from eigenveil.reporting.report import render

    published = load_release(data)
    digest = published.document["plan_digest"]
    check_folder(folder, lambda held: bool(held["plan_digest"] == digest))
    release, report = folder / RELEASE, folder / REPORT
    write_durably(release, data)
    page = render(published.document, public_key=published.public_key.hex())
    write_durably(report, page.encode())
    return Written(release=release, report=report, document=published.document)


def check_log(release: SignedRelease, path: Path) -> dict[str, Any] | None:
    """How much of a release a log of signed rounds shows."""
    found = verify_release(release, release.public_key, read(path))
    if found is None:
        return None
    some = (
        f"every question in the log follows, {found.rounds} of {found.of} rounds; the result was NOT compared"
    )
    words = "every question and the result follow" if found.result else some
    return {
        "statements": found.statements,
        "rounds": found.rounds,
        "result_compared": found.result,
        "words": f"From the plan and the signed releases {words}.",
    }


def trust_told(document: Mapping[str, Any]) -> str:
    """Who saw a site's totals, by the plan; and that the document's own words are others, if they are: they
    are whatever the coordinator wrote."""
    try:
        words = trust_of(document)
    except EigenveilError as problem:
        return f"unknown: {problem}"
    if words == document.get("trust"):
        return words
    return f"{words}. {OTHER_WORDS}"


def describe_analyst(document: Mapping[str, Any], profile: Path | None) -> tuple[dict[str, Any], str]:
    """The analyst of a release as plain values and as a sentence. Raises as `asked_by` and `own_key`."""
    asked = asked_by(document)
    own = own_key(asked, document["plan"]["federation"], profile)
    return asked.to_dict() | {"own_key": own}, f"Asked by {asked.words}.{own_key_statement(own)}"


def own_key(asked: AskedBy, federation: str, profile: Path | None) -> bool | None:
    """Whether a release in the name of this profile was signed by the key that it has now; None if it is in
    another name, its signature was not checked, or the profile has no key. Raises as `SigningKey.read`."""
    folder = profile or default_profile()
    owner = named(folder)
    if owner is None or owner.role is not Role.ANALYST or not asked.checked:
        return None
    if (owner.federation, owner.name) != (federation, asked.analyst):
        return None
    return SigningKey.read(folder).card.fingerprint == asked.fingerprint if made(folder) else None


def own_key_statement(own: bool | None) -> str:
    """`own_key` for a person, after the sentence that says who asked."""
    if own is None:
        return ""
    if own:
        return " That is your own key."
    return (
        " It is in your name, and NOT by the key that you have now. If it is not by an earlier key of yours "
        "either, or you did not ask for it, tell the people of the sites and the federation's operator."
    )


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
