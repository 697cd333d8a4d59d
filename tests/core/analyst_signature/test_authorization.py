"""An authorization holds for one plan, one analyst's key and one span of time, and for nothing else. [R31]"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import Code, EigenveilError
from eigenveil.key_cards import (
    AnalystKeyCard,
    SignedAnalystKeyCard,
    SignedSiteKeyCard,
    cards_from_file,
    cards_to_file,
)
from eigenveil.numerics.encoding import canonical
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Choose, Study, Trust
from eigenveil.study_authorization import (
    AUTHORIZATION_SIGNED,
    MAX_AUTHORIZATION_SECONDS,
    MOST_SENT,
    SignedAuthorization,
    authorization_from_dict,
    authorization_from_proto,
    authorize,
    check_authorization,
    check_plan_matches_study,
)
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.core.secure_aggregation.cards import signed_card
from tests.support import a_study, analyst_card, analyst_key, refused, signed_by_analyst

NOW = 1_800_000_000
UNTIL = NOW + 3600
NAMES = {"federation": "north", "submission": "one", "analyst": "ada"}
STUDY = a_study()


def a_plan(study: Study = STUDY, **names: Any) -> Plan:
    return make_plan(study, **{**NAMES, **names})


PLAN = a_plan()
SIGNED = signed_by_analyst(PLAN, expires=UNTIL)


def of(plan: Plan) -> SignedAuthorization:
    """The authorization of another plan by its own analyst."""
    return signed_by_analyst(plan, expires=UNTIL)


def stating(**changes: Any) -> SignedAuthorization:
    """A statement with changed fields, under ada's own signature."""
    stated = json.loads(SIGNED.signed_json) | changes
    return signing(canonical({name: value for name, value in stated.items() if value is not None}))


def changed_to(part: str, value: bytes) -> SignedAuthorization:
    return replace(SIGNED, signed_json=value) if part == "signed_json" else replace(SIGNED, signature=value)


def signing(message: bytes) -> SignedAuthorization:
    return replace(
        SIGNED, signed_json=message, signature=analyst_key("ada").sign(AUTHORIZATION_SIGNED + message)
    )


def test_an_authorization_holds_for_its_plan_until_it_expires() -> None:
    card = check_authorization(SIGNED, PLAN, NOW)
    assert (card.analyst, card.digest) == ("ada", analyst_card("ada", "north").check().digest)
    assert check_authorization(SIGNED, PLAN, UNTIL - 1) == card
    with refused(Code.AUTHORIZATION_EXPIRED, "expired at", "sign it again"):
        check_authorization(SIGNED, PLAN, UNTIL)


def test_an_authorization_lasts_no_longer_than_the_most_from_now() -> None:
    most = signed_by_analyst(PLAN, expires=NOW + MAX_AUTHORIZATION_SECONDS)
    check_authorization(most, PLAN, NOW)
    with refused(Code.AUTHORIZATION, "for more than 31 days"):
        check_authorization(most, PLAN, NOW - 1)


@pytest.mark.parametrize(
    ("code", "words", "signed"),
    [
        (Code.AUTHORIZATION, "another plan", lambda: of(a_plan(a_study(epsilon=0.5)))),
        (Code.AUTHORIZATION, "for submission two", lambda: of(a_plan(submission="two"))),
        (Code.AUTHORIZATION, "for federation south", lambda: of(a_plan(federation="south"))),
        (Code.AUTHORIZATION, "for analyst eve", lambda: of(a_plan(analyst="eve"))),
        (Code.AUTHORIZATION, "for analyst eve", lambda: stating(analyst="eve")),
        (Code.AUTHORIZATION, "for federation south", lambda: stating(federation="south")),
        (Code.AUTHORIZATION, "for submission two", lambda: stating(submission="two")),
        (Code.AUTHORIZATION, "another plan", lambda: stating(plan="ab" * 32)),
        (Code.AUTHORIZATION, "for key", lambda: stating(key="ab" * 32)),
        (Code.VERSION, "has the format", lambda: stating(format="eigenveil-authorization/2")),
        (Code.PROTOCOL, "is expected", lambda: stating(format="eigenveil-attempt/1")),
        (Code.VERSION, "requires more", lambda: stating(more="x", required=["more"])),
        (Code.PROTOCOL, "cannot be read", lambda: stating(format=None)),
        (Code.PROTOCOL, "cannot be read", lambda: stating(expires=None)),
        (Code.PROTOCOL, "has an invalid field", lambda: stating(expires="soon")),
        (Code.PROTOCOL, "has an invalid field", lambda: stating(expires=True)),
        (Code.PROTOCOL, "has an invalid field", lambda: stating(expires=-1)),
        (Code.PROTOCOL, "has an invalid field", lambda: stating(plan="ab")),
        (Code.PROTOCOL, "has an invalid field", lambda: stating(analyst=7)),
        (Code.PROTOCOL, "canonical", lambda: signing(SIGNED.signed_json + b" ")),
        (Code.PROTOCOL, "too long", lambda: stating(submission="x" * 1024)),
        (Code.PROTOCOL, "cannot be read", lambda: signing(b"[]")),
        (Code.IDENTITY, "by the stated key", lambda: replace(
            SIGNED, signed_json=stating(expires=NOW).signed_json)),
        (Code.IDENTITY, "not signed by the stated key", lambda: replace(SIGNED, signature=bytes(64))),
        (Code.IDENTITY, "not signed by the stated key", lambda: replace(
            SIGNED, signature=analyst_key("ada").sign(
                b"eigenveil/plan-signature/v1\n" + SIGNED.signed_json))),
        (Code.IDENTITY, "not signed by the stated key", lambda: replace(
            SIGNED, card=analyst_card("ada", "north", analyst_key("eve")))),
        (Code.IDENTITY, "not signed by its own key", lambda: replace(
            SIGNED, card=replace(SIGNED.card, signature=bytes(64)))),
    ],
)  # fmt: skip
def test_an_authorization_of_anything_else_is_refused(
    code: Code, words: str, signed: Callable[[], SignedAuthorization]
) -> None:
    with refused(code, words):
        check_authorization(signed(), PLAN, NOW)


def test_a_card_of_another_federation_authorizes_nothing_here() -> None:
    external = analyst_card("ada", "south")
    message = canonical(json.loads(SIGNED.signed_json) | {"key": external.check().digest})
    with refused(Code.AUTHORIZATION, "for federation south, not north"):
        check_authorization(replace(signing(message), card=external), PLAN, NOW)


def test_a_card_of_another_analyst_authorizes_nothing_in_this_name() -> None:
    card, key = analyst_card("eve", "north"), analyst_key("eve")
    message = canonical(json.loads(SIGNED.signed_json) | {"key": card.check().digest})
    signed = SignedAuthorization(
        signed_json=message, signature=key.sign(AUTHORIZATION_SIGNED + message), card=card
    )
    with refused(Code.AUTHORIZATION, "for analyst eve, not ada"):
        check_authorization(signed, PLAN, NOW)


def test_only_a_plan_in_the_key_s_own_name_is_authorized() -> None:
    key = analyst_key("eve")
    with refused(Code.AUTHORIZATION, "of ada in federation north, the key card of eve"):
        authorize(PLAN, analyst_card("eve", "north"), UNTIL, key.sign)


@given(st.integers(0, 2**16), st.integers(1, 255), st.sampled_from(["signed_json", "signature"]))
def test_an_authorization_with_any_byte_changed_is_refused(place: int, flip: int, part: str) -> None:
    changed = bytearray(getattr(SIGNED, part))
    changed[place % len(changed)] ^= flip
    with pytest.raises(EigenveilError):
        check_authorization(changed_to(part, bytes(changed)), PLAN, NOW)


def test_an_authorization_travels_and_is_stored_as_it_was_signed() -> None:
    assert authorization_from_proto(SIGNED.to_proto()) == SIGNED
    assert authorization_from_dict(json.loads(json.dumps(SIGNED.to_dict()))) == SIGNED
    with refused(Code.PROTOCOL, "too long"):
        authorization_from_proto(pb.SignedAuthorization(key_card_json=bytes(MOST_SENT)))
    for broken in ({}, {"authorization": 1, "signature": "x", "card": {}}):
        with refused(Code.PROTOCOL, "cannot be read"):
            authorization_from_dict(broken)


AUTO = a_study(algorithm=Algorithm.AUTO)


@pytest.mark.parametrize("study", [STUDY, AUTO, replace(AUTO, choose=Choose.DURING)])
def test_a_plan_matches_the_study_it_was_made_of(study: Study) -> None:
    check_plan_matches_study(a_plan(study), study, **NAMES)


@pytest.mark.parametrize(
    "planned",
    [
        a_plan(a_study(epsilon=2.0)),
        a_plan(replace(STUDY, trust=Trust.SECURE_AGGREGATION)),
        a_plan(replace(STUDY, algorithm=Algorithm.REFINED_COV)),
        a_plan(submission="two"), a_plan(analyst="eve"), a_plan(federation="south"),
        replace(PLAN, algorithm=Algorithm.REFINED_COV),
        replace(PLAN, micro_rho=PLAN.micro_rho - 1),
    ],
)  # fmt: skip
def test_a_plan_of_another_study_is_refused(planned: Plan) -> None:
    with refused(Code.PROTOCOL, "does not match the submitted study"):
        check_plan_matches_study(planned, STUDY, **NAMES)


def test_auto_leaves_the_choice_among_its_own_algorithms_alone() -> None:
    check_plan_matches_study(replace(a_plan(AUTO), algorithm=Algorithm.REFINED_PCA), AUTO, **NAMES)
    with refused(Code.PROTOCOL, "does not match the submitted study"):
        check_plan_matches_study(replace(a_plan(AUTO), algorithm=Algorithm.ANALYZE_GAUSS), AUTO, **NAMES)
    during = replace(AUTO, choose=Choose.DURING)
    with refused(Code.PROTOCOL, "does not match the submitted study"):
        check_plan_matches_study(replace(a_plan(during), algorithm=Algorithm.GAUSS_COV), during, **NAMES)


# Key cards of analysts [R30].


ADA = analyst_card("ada", "north")


def stating_card(**changes: Any) -> SignedAnalystKeyCard:
    message = canonical(json.loads(ADA.signed_json) | changes)
    return SignedAnalystKeyCard(
        signed_json=message, signature=analyst_key("ada").sign(AnalystKeyCard.prefix + message)
    )


def test_an_analyst_card_is_valid_and_has_its_own_fingerprint() -> None:
    card = ADA.check()
    assert (card.owner, card.federation) == ("ada", "north")
    assert len(card.fingerprint.replace(" ", "")) == 40
    assert card.digest != analyst_card("ada", "south").check().digest


@pytest.mark.parametrize(
    ("code", "signed"),
    [
        (Code.IDENTITY, replace(ADA, signature=bytes(64))),
        (Code.IDENTITY, stating_card(signing=analyst_key("eve").public_key().public_bytes_raw().hex())),
        (Code.PROTOCOL, stating_card(analyst="Ada L")),
        (Code.PROTOCOL, stating_card(signing="ab")),
        (Code.VERSION, stating_card(more="x", required=["more"])),
        (Code.PROTOCOL, replace(ADA, signed_json=ADA.signed_json + b" ")),
        (Code.PROTOCOL, replace(ADA, signed_json=b"{}")),
    ],
)
def test_a_card_that_was_changed_is_refused(code: Code, signed: SignedAnalystKeyCard) -> None:
    with refused(code):
        signed.check()


def test_a_key_that_a_card_does_not_require_is_kept_and_covered_by_its_fingerprint() -> None:
    later = stating_card(more={"x": [1]})
    card = later.check()
    assert (card.signed_json, card.owner, card.signing) == (later.signed_json, "ada", ADA.check().signing)
    assert card.fingerprint != ADA.check().fingerprint


def test_a_file_holds_cards_of_one_kind() -> None:
    assert cards_from_file(cards_to_file([ADA]), SignedAnalystKeyCard) == (ADA,)
    with pytest.raises(EigenveilError, match="the site's key card is expected"):
        cards_from_file(cards_to_file([ADA]), SignedSiteKeyCard)
    with pytest.raises(EigenveilError, match="the analyst's key card is expected"):
        cards_from_file(cards_to_file([signed_card()]), SignedAnalystKeyCard)
