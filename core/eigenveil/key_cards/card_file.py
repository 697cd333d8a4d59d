"""Cards as people send them to each other: a `*.peer` or `*.analyst` file, the JSON of one signed card or of
several.

Nothing in it is secret. Whether a card is its owner's is not for the file to say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from eigenveil.errors import Code, PeerError
from eigenveil.key_cards.key_card import KeyCard, SignedKeyCard
from eigenveil.numerics.encoding import canonical, parse_json

MOST_BYTES = 2**21  # of a file; some 5,000 cards
AnySigned = TypeVar("AnySigned", bound=SignedKeyCard[KeyCard])


def cards_to_file(cards: Iterable[SignedKeyCard[KeyCard]]) -> bytes:
    """These cards as a file."""
    return json.dumps({"cards": [card_to_dict(one) for one in cards]}, indent=2).encode() + b"\n"


def cards_from_file(data: bytes, kind: Callable[..., AnySigned]) -> tuple[AnySigned, ...]:
    """The cards in a file, each of this kind of signed card, and each of which holds (`SignedKeyCard.check`).
    Spaces, line ends and the order of fields may have changed on the way.

    Raises:
        PeerError: code `protocol`, it is no such file, or one of its cards is none of this kind; `identity`,
            a card is not signed by its own key.
    """
    if len(data) > MOST_BYTES:
        raise PeerError(Code.PROTOCOL, f"a file of {len(data)} bytes is too long for cards")
    try:
        cards = tuple(card_from_dict(one, kind) for one in parse_json(data)["cards"])
    except (ValueError, KeyError, TypeError) as problem:
        raise PeerError(Code.PROTOCOL, "this is no file of cards; ask for it once more") from problem
    if not cards:
        raise PeerError(Code.PROTOCOL, "there is no card in this file; ask for it once more")
    for one in cards:
        one.check()
    return cards


def card_to_dict(card: SignedKeyCard[KeyCard]) -> dict[str, Any]:
    """A signed card as plain values, which people can read."""
    return {"card": parse_json(card.said), "signature": card.signature.hex()}


def card_from_dict(written: dict[str, Any], kind: Callable[..., AnySigned]) -> AnySigned:
    """The inverse; nothing is checked.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    return kind(said=canonical(written["card"]), signature=bytes.fromhex(written["signature"]))
