"""Cards as people send them to each other: a `*.peer` file, the JSON of one signed card or of several.

Nothing in it is secret. Whether a card is its site's is not for the file to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from eigenveil.errors import Code, PeerError
from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil.secure_aggregation.card import SignedCard

MOST_BYTES = 2**21  # of a file; some 5,000 cards


def cards_to_file(cards: Iterable[SignedCard]) -> bytes:
    """These cards as a file."""
    return json.dumps({"cards": [card_to_dict(one) for one in cards]}, indent=2).encode() + b"\n"


def cards_from_file(data: bytes) -> tuple[SignedCard, ...]:
    """The cards in a file, each of which holds (`SignedCard.check`). Spaces, line ends and the order of
    fields may have changed on the way.

    Raises:
        PeerError: code `protocol`, it is no such file, or one of its cards is none; `identity`, a card is not
            signed by its own key.
    """
    if len(data) > MOST_BYTES:
        raise PeerError(Code.PROTOCOL, f"a file of {len(data)} bytes is too long for cards of sites")
    try:
        cards = tuple(card_from_dict(one) for one in parse_json(data)["cards"])
    except (ValueError, KeyError, TypeError) as problem:
        raise PeerError(Code.PROTOCOL, "this is no file of cards; ask for it once more") from problem
    if not cards:
        raise PeerError(Code.PROTOCOL, "there is no card in this file; ask for it once more")
    for one in cards:
        one.check()
    return cards


def card_to_dict(card: SignedCard) -> dict[str, Any]:
    """A signed card as plain values, which people can read."""
    return {"card": parse_json(card.said), "signature": card.signature.hex()}


def card_from_dict(written: dict[str, Any]) -> SignedCard:
    """The inverse; nothing is checked.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    return SignedCard(said=canonical(written["card"]), signature=bytes.fromhex(written["signature"]))
