"""What a site states of itself to its federation, by its own word: all of it is in its site.toml.

Nothing of it is computed from records. A site that offers nothing says nothing of its columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from eigenveil.dictionary.rules import StatedRules, rules_from_proto
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.study.checks import check_readable, need, settle
from eigenveil.study.study import LONGEST_NAME, MAX_COLUMNS
from eigenveil_proto.v1 import eigenveil_pb2 as pb

MOST_BYTES = 64 * 1024
RULES = ("max_missing", "max_unreadable", "max_out_of_bounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteStatement:
    """The columns that a site offers (None: it does not say), whether a person there decides about every
    study, and beyond which share of the persons in its file a column is not answered about: missing,
    unreadable, out of bounds. `allows` are its rules about studies (None: it does not say).

    Raises:
        RequestError: code `bad-study`, a value is out of range or cannot be shown.
    """

    offers: tuple[str, ...] | None = None
    asks: bool
    max_missing: float
    max_unreadable: float
    max_out_of_bounds: float
    allows: StatedRules | None = None

    def __post_init__(self) -> None:
        settle(self)
        for name in RULES:
            share = getattr(self, name)
            need(math.isfinite(share) and 0 <= share <= 1, f"{name} must be a share, between 0 and 1")
        for name in self.offers or ():
            check_readable("the name of a column that a site offers", name, LONGEST_NAME)
        need(len(self.offers or ()) <= MAX_COLUMNS, f"a site offers at most {MAX_COLUMNS} columns")
        size = self.to_proto().ByteSize()
        need(
            size <= MOST_BYTES,
            f"what this site offers takes {size} bytes, and a statement has {MOST_BYTES}: offer fewer",
        )

    @property
    def rules(self) -> dict[str, float]:
        """The thresholds, by their keys in site.toml."""
        return {name: getattr(self, name) for name in RULES}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a screen or a document."""
        offers = None if self.offers is None else list(self.offers)
        allows = None if self.allows is None else self.allows.to_dict()
        approval = "ask" if self.asks else "auto"
        return {"offers": offers, "approval": approval, "rules": self.rules, "allows": allows}

    def seen_by(self, analyst: str) -> SiteStatement:
        """What one analyst is told of it."""
        return self if self.allows is None else replace(self, allows=self.allows.seen_by(analyst))

    def to_proto(self) -> pb.SiteStatement:
        """The same in a message."""
        return pb.SiteStatement(
            offers_stated=self.offers is not None,
            offers=self.offers or (),
            asks=self.asks,
            allows=None if self.allows is None else self.allows.to_proto(),
            **self.rules,
        )


def statement_from_proto(message: pb.SiteStatement) -> SiteStatement:
    """What a site states, if it can be read by people and is not too long.

    Raises:
        PeerError: code `protocol`.
    """
    if message.ByteSize() > MOST_BYTES:
        raise PeerError(Code.PROTOCOL, f"a site's statement has at most {MOST_BYTES} bytes")
    try:
        return SiteStatement(
            offers=tuple(message.offers) if message.offers_stated else None,
            asks=message.asks,
            allows=rules_from_proto(message.allows) if message.HasField("allows") else None,
            **{name: getattr(message, name) for name in RULES},
        )
    except RequestError as problem:
        raise PeerError(Code.PROTOCOL, f"a site's statement cannot be: {problem}") from problem
