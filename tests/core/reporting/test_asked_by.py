"""A release names the key that signed its plan, and claims no more than was signed [R31]."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil import simulate
from eigenveil.errors import Code
from eigenveil.numerics.encoding import canonical
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.estimate import no_release
from eigenveil.reporting.document import ReleaseContent, release_document, signed_release
from eigenveil.reporting.report import render
from eigenveil.reporting.result import result_of
from eigenveil.reporting.verify import load_release, verify_release
from eigenveil.study_authorization import release_analyst
from tests.support import a_plan, a_study, analyst_card, refused, signed_by_analyst

FEDERATION = Ed25519PrivateKey.from_private_bytes(bytes(32))
PLAN = make_plan(a_study(), federation="test", submission="first", analyst="ada")
ELSEWHERE = make_plan(a_study(epsilon=2.0), federation="test", submission="first", analyst="ada")
EXPIRED = 1_000_000_000  # in 2001: a release outlives the signature
SIGNED = signed_by_analyst(PLAN, expires=EXPIRED)
RESULT = result_of(PLAN, no_release(PLAN, 100.0, "no direction stood out"))


def a_document(**changes: Any) -> dict[str, Any]:
    """Published document of ada's study, with `changes` to it."""
    document = release_document(PLAN, RESULT, [], rounds=[], private=True, authorization=SIGNED)
    read: dict[str, Any] = json.loads(canonical(document | changes))
    return read


def verified(document: dict[str, Any]) -> dict[str, Any]:
    """The document, sealed by the federation and read again as offline verification does."""
    public = FEDERATION.public_key().public_bytes_raw()
    release = load_release(signed_release(document, RESULT, sign=FEDERATION.sign, public_key=public))
    verify_release(release, public)
    return release.document


def page_of(document: dict[str, Any]) -> str:
    return render(ReleaseContent(document=document, result=RESULT))


def test_a_signed_release_names_the_analyst_and_the_key_and_shows_the_digits() -> None:
    card = analyst_card("ada", "test").check()
    query = release_analyst(verified(a_document()))
    assert (query.analyst, query.key_card, query.fingerprint) == ("ada", card.digest, card.fingerprint)
    assert query.text == f"the holder of the key with the fingerprint {card.fingerprint}, in the name of ada"
    assert query.to_dict()["signed"] is True
    assert f"Asked by {query.text}." in page_of(a_document())


@pytest.mark.parametrize("section", ["none", "as an older version wrote it"])
def test_an_unsigned_analyst_name_is_marked_as_stated_by_the_coordinator(section: str) -> None:
    document = a_document(authorization=None)
    if section != "none":
        del document["authorization"]
    query = release_analyst(verified(document))
    assert (query.analyst, query.key_card, query.fingerprint) == ("ada", "", "")
    assert "only the coordinator states this name" in query.text
    assert query.to_dict()["signed"] is False
    assert "only the coordinator states this name" in page_of(document)


def test_a_simulation_is_marked_as_not_signed() -> None:
    plan = a_plan()
    result = result_of(plan, no_release(plan, 100.0, "no direction stood out"))
    document = release_document(plan, result, [], rounds=[], private=True)
    assert document["authorization"] is None
    assert "which is not signed" in release_analyst(document).text
    assert "which is not signed" in page_of(document)
    records = {site: np.eye(3).repeat(50, axis=0) for site in plan.study.federation.sites}
    simulated = simulate(plan.study, records).document
    assert "which is not signed" in release_analyst(simulated).text
    simulated["plan"]["federation"] = "test"  # there is nothing in the name alone
    assert "only the coordinator states this name" in release_analyst(simulated).text


def _flipped(where: str) -> Callable[[dict[str, Any]], None]:
    def change(section: dict[str, Any]) -> None:
        section[where] = f"{int(section[where][:2], 16) ^ 1:02x}{section[where][2:]}"

    return change


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another plan": lambda one: one["authorization"].update(plan=ELSEWHERE.digest),
    "a field less": lambda one: one["authorization"].pop("key"),
    "another signature": _flipped("signature"),
    "the card of another key": lambda one: one.update(
        card=signed_by_analyst(PLAN, Ed25519PrivateKey.generate()).to_dict()["card"]
    ),
    "the authorization of another plan": lambda one: one.update(signed_by_analyst(ELSEWHERE).to_dict()),
    "nothing of it": lambda one: one.clear(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_authorization_is_no_good_release_though_the_federation_signed_it(
    change: Callable[[dict[str, Any]], Any],
) -> None:
    document = a_document()
    change(document["authorization"])
    with refused(Code.BAD_RELEASE, "the analyst's signature in this release is invalid"):
        verified(document)


def test_a_signature_of_a_later_format_is_marked_unchecked() -> None:
    document = a_document()
    document["authorization"]["authorization"]["format"] = "eigenveil-authorization/2"
    query = release_analyst(verified(document))
    assert (query.key_card, query.fingerprint, query.checked) == ("", "", False)
    assert query.to_dict()["signed"] is None, "neither signed nor unsigned: not known"
    assert "the signature was not checked" in query.text


@pytest.mark.parametrize("written", [[], "signed", 1, {"authorization": {}}])
def test_a_malformed_authorization_is_refused(written: Any) -> None:
    with refused(Code.BAD_RELEASE):
        verified(a_document(authorization=written))
