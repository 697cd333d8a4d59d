"""An analyst's card: what was changed on its way is not believed, and no other card passes for one. [R30]"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from eigenveil.errors import Code, EigenveilError
from eigenveil.key_cards.key_card import cards_from_file, cards_to_file
from eigenveil.key_cards.owners import ANALYST_CARD_SIGNED, SignedAnalystKeyCard, SignedSiteKeyCard
from eigenveil.numerics.encoding import canonical
from tests.core.secure_aggregation.cards import signed_card
from tests.support import analyst_card, analyst_key, refused

ADA = analyst_card("ada", "north")


def stating(**changes: Any) -> SignedAnalystKeyCard:
    said = canonical(json.loads(ADA.said) | changes)
    return SignedAnalystKeyCard(said=said, signature=analyst_key("ada").sign(ANALYST_CARD_SIGNED + said))


def test_a_card_holds_and_has_digits_of_its_own() -> None:
    card = ADA.check()
    assert (card.owner, card.federation) == ("ada", "north")
    assert len(card.fingerprint.replace(" ", "")) == 40
    assert card.digest != analyst_card("ada", "south").check().digest


@pytest.mark.parametrize(
    ("code", "signed"),
    [
        (Code.IDENTITY, replace(ADA, signature=bytes(64))),
        (Code.IDENTITY, stating(signing=analyst_key("eve").public_key().public_bytes_raw().hex())),
        (Code.PROTOCOL, stating(analyst="Ada L")),
        (Code.PROTOCOL, stating(signing="ab")),
        (Code.PROTOCOL, stating(more="x")),
        (Code.PROTOCOL, replace(ADA, said=ADA.said + b" ")),
        (Code.PROTOCOL, replace(ADA, said=b"{}")),
    ],
)
def test_a_card_that_was_changed_is_refused(code: Code, signed: SignedAnalystKeyCard) -> None:
    with refused(code, "rejected"):
        signed.check()


def test_a_file_holds_cards_of_one_kind() -> None:
    assert cards_from_file(cards_to_file([ADA]), SignedAnalystKeyCard) == (ADA,)
    with pytest.raises(EigenveilError, match="cannot be read"):
        cards_from_file(cards_to_file([ADA]), SignedSiteKeyCard)
    with pytest.raises(EigenveilError, match="cannot be read"):
        cards_from_file(cards_to_file([signed_card()]), SignedAnalystKeyCard)
