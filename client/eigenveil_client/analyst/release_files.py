"""release.zip on an analyst's disk: its verification, and its report beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from eigenveil.errors import Code, EigenveilError, PeerError, RequestError
from eigenveil.identity import Role
from eigenveil.protocol.authorities import list_from_json
from eigenveil.reporting.explain import GUARANTEE_TEXT_DIFFERS
from eigenveil.reporting.trust import document_trust_text
from eigenveil.reporting.verify import SignedRelease, load_release, verify_release
from eigenveil.signatures import Keys
from eigenveil.study_authorization import ReleaseAnalyst, release_analyst
from eigenveil_client.analyst.profile import SigningKey, default_profile, key_exists
from eigenveil_client.connection.identity import folder_identity
from eigenveil_client.connection.identity_files import stored_authorities
from eigenveil_common.files import check_output, make_folder, path_exists, read, write_durably

KEY = re.compile(r"[0-9a-f]{64}")
PRIVATE_BYTES = 32  # a coordinator's release.key; public keys are text
RELEASE = "release.zip"
REPORT = "report.html"
ELSEWHERE = "Name another folder with --out"


def read_key(text: str) -> Keys:
    """Return a raw Ed25519 public key from 64 hexadecimal digits, or all that a file such as authorities.json
    names."""
    given = text.strip()
    if KEY.fullmatch(given.lower()):
        return bytes.fromhex(given)
    if not os.path.isfile(given):
        raise _bad_argument(f"{given!r} is neither a key of 64 hexadecimal digits nor a file")
    data = read(Path(given))
    if len(data) == PRIVATE_BYTES or b"PRIVATE KEY" in data:
        todo = "Use the public key, shown by: eigenveil-coordinator status --config FILE"
        raise _bad_argument(f"{given} holds a private key, which must not leave the coordinator. {todo}")
    with suppress(PeerError):  # else all of the file is the key
        return list_from_json(data).known_keys
    content = data.decode("utf-8-sig", errors="replace")
    if KEY.fullmatch(content.strip().lower()):
        return bytes.fromhex(content.strip())
    raise _bad_argument(f"{given} holds no Ed25519 public key (64 hexadecimal digits)")


_bad_argument = partial(RequestError, Code.BAD_ARGUMENT)


def check_folder(folder: Path, ours: Callable[[Mapping[str, Any]], bool]) -> None:
    """Create `folder`, and raise an error if it holds a release whose document is not `ours`."""
    make_folder(folder)
    release = folder / RELEASE
    for path in (release, folder / REPORT):
        check_output(path)
    if not path_exists(release):
        return
    try:
        document = load_release(read(release)).document
    except RequestError as problem:
        raise RequestError(Code.CONFLICT, f"{release} is not an intact release. {ELSEWHERE}") from problem
    if not ours(document):
        study = f"{document['plan']['study']['name']} ({document['plan_digest'][:12]})"
        why = f"{release} is the release of another study, {study}"
        raise RequestError(Code.CONFLICT, f"{why}. {ELSEWHERE}")


def write_result(data: bytes, folder: Path) -> SignedRelease:
    """Write an intact release.zip and its report.html into `folder`, and replace those of the same study.
    Return the release."""
    # imported here, as drawing takes a second to import
    from eigenveil.reporting.report import render

    published = load_release(data)
    digest = published.document["plan_digest"]
    check_folder(folder, lambda existing: bool(existing["plan_digest"] == digest))
    write_durably(folder / RELEASE, data)
    page = render(published, public_key=published.public_key.hex())
    write_durably(folder / REPORT, page.encode())
    return published


def check_signer(release: SignedRelease, key: str | None, profile: Path | None) -> bool:
    """Return False if neither a key is stated nor the profile is of the release's federation."""
    trusted = profile_key(profile, release.document["plan"]["federation"]) if key is None else read_key(key)
    if trusted is not None:
        verify_release(release, trusted)
    return trusted is not None


def check_log(release: SignedRelease, path: Path) -> dict[str, Any] | None:
    """Return the part of a release that a log of signed rounds reproduces."""
    found = verify_release(release, release.public_key, read(path))
    if found is None:
        return None
    some = f"every query in the log follows, {found.rounds} of {found.of} rounds; the result was NOT compared"
    statement = "every query and the result follow" if found.result else some
    return {
        "statements": found.statements,
        "rounds": found.rounds,
        "result_compared": found.result,
        "text": f"From the plan and the signed releases {statement}.",
    }


def trust_statement(document: Mapping[str, Any]) -> str:
    """Return the parties that saw a site's totals, by the plan. A differing text in the document, which the
    coordinator wrote, is noted."""
    try:
        statement = document_trust_text(document)
    except EigenveilError as problem:
        return f"unknown: {problem}"
    if statement == document.get("trust"):
        return statement
    return f"{statement}. {GUARANTEE_TEXT_DIFFERS}"


def describe_analyst(document: Mapping[str, Any], profile: Path | None) -> tuple[dict[str, Any], str]:
    """Return the analyst of a release as plain values and as a sentence."""
    asker = release_analyst(document)
    current = signed_by_current_key(asker, document["plan"]["federation"], profile)
    sentence = f"Requested by {asker.text}.{CURRENT_KEY[current]}"
    return asker.to_dict() | {"current_key": current}, sentence


CURRENT_KEY = {  # sentences on `signed_by_current_key`, to follow the one about the analyst
    None: "",
    True: " That is your present key.",
    False: (
        " It is in your name, but NOT signed by your present key. If you did not sign it with an earlier "
        "key, inform the sites and the federation's operator."
    ),
}


def signed_by_current_key(asker: ReleaseAnalyst, federation: str, profile: Path | None) -> bool | None:
    """Return True if a release in the name of this profile was signed by its present key. None if it is in
    another name, its signature was not checked, or the profile has no key. Raises as `SigningKey.read`."""
    folder = profile or default_profile()
    owner = folder_identity(folder)
    if owner is None or owner.role is not Role.ANALYST or not asker.checked:
        return None
    if (owner.federation, owner.name) != (federation, asker.analyst) or not key_exists(folder):
        return None
    return SigningKey.read(folder).key_card.fingerprint == asker.fingerprint


def profile_key(profile: Path | None, federation: str) -> Keys | None:
    """Return the release keys that the profile trusts; None if the default profile is not of `federation`."""
    folder = profile or default_profile()
    owner = folder_identity(folder)
    if owner is not None and owner.federation == federation:
        return stored_authorities(folder).known_keys
    if profile is not None:
        raise _bad_argument(f"{profile} holds no identity of federation {federation}")
    return None
