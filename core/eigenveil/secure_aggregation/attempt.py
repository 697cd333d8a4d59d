"""An attempt at a masked round: which sites, with which cards, and its number; signed by the coordinator.

Its digest is in the derivation of every mask, so masks only cancel between sites that were told
the same [P31].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from eigenveil.errors import Code, PeerError
from eigenveil.numerics.encoding import canonical, digest_of, parse_json
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.statements import HEX
from eigenveil.signed import Sign, check_signature
from eigenveil.study.study import MAX_ATTEMPTS, MAX_SITES, NAME

ATTEMPT_SIGNED = b"eigenveil/attempt-signature/v1\n"
MOST_BYTES = 200 * MAX_SITES


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The sites whose masked answers to a question are added, by name, each with the digest of its card.

    `number` counts the attempts at a round from 1.

    Raises:
        PeerError: code `protocol`, a field is not of its form.
    """

    plan: str
    round: int
    query: str
    number: int
    members: Mapping[str, str]

    def __post_init__(self) -> None:
        digests = (self.plan, self.query, *self.members.values())
        hexed = all(type(one) is str and len(one) == HEX for one in digests)
        named = all(NAME.fullmatch(name) for name in self.members)
        whole = type(self.round) is int and type(self.number) is int
        counted = whole and self.round >= 0 and 1 <= self.number <= MAX_ATTEMPTS
        if not (hexed and named and counted and 2 <= len(self.members) <= MAX_SITES):
            raise PeerError(Code.PROTOCOL, "what is stated of a set of sites does not fit together")

    @classmethod
    def at(cls, asked: RoundQuery, number: int, cards: Mapping[str, str]) -> Attempt:
        """Attempt `number` at a question, for the sites with these cards."""
        return cls(
            plan=asked.plan_digest, round=asked.round, query=asked.digest, number=number, members=dict(cards)
        )

    @property
    def sites(self) -> tuple[str, ...]:
        """Its members by name."""
        return tuple(sorted(self.members))

    @cached_property
    def said(self) -> bytes:
        """Canonical JSON: the bytes that are signed, stored and hashed."""
        return canonical(asdict(self))

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex): what every mask of this attempt is derived from."""
        return digest_of("attempt", self.said)

    def is_of(self, asked: RoundQuery) -> bool:
        """Whether it is an attempt at this very question."""
        return (self.plan, self.round, self.query) == (asked.plan_digest, asked.round, asked.digest)

    def signed(self, sign: Sign) -> SignedAttempt:
        """The attempt under the release key."""
        return SignedAttempt(said=self.said, signature=sign(ATTEMPT_SIGNED + self.said))

    @classmethod
    def read(cls, said: bytes) -> Attempt:
        """What these bytes state, signed or not.

        Raises:
            PeerError: code `protocol`, no attempt, or not in canonical form.
        """
        try:
            raw: dict[str, Any] = parse_json(said)
            attempt = cls(**raw)
            written = attempt.said
        except (ValueError, TypeError, AttributeError) as problem:
            raise PeerError(Code.PROTOCOL, "what is stated of a set of sites cannot be read") from problem
        if written != said:
            raise PeerError(Code.PROTOCOL, "what is stated of a set of sites is not in canonical form")
        return attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAttempt:
    """An attempt's canonical JSON and the Ed25519 signature over it."""

    said: bytes
    signature: bytes

    def check(self, release_key: bytes) -> Attempt:
        """What it states, if the federation's release key (raw Ed25519) signed these very bytes.

        Raises:
            PeerError: code `identity`, signed by another key or changed; `protocol`, not an attempt.
        """
        if len(self.said) > MOST_BYTES:
            raise PeerError(Code.PROTOCOL, f"a set of sites of {len(self.said)} bytes is too long")
        check_signature(
            release_key,
            self.signature,
            ATTEMPT_SIGNED + self.said,
            "what is stated of a set of sites is not signed by this federation",
        )
        return Attempt.read(self.said)
