"""Pairwise masks of an attempt at a round: one site adds what another subtracts, so they cancel [P31]. The
coordinator signs an attempt: its sites with their keys for the study, and its number. Every mask is derived
from its digest, so masks cancel only between sites that received the same attempt. A mask is the keystream
of ChaCha20, read as little-endian integers modulo 2^64. HKDF derives its key from the pair's X25519 secret
and the attempt. Without this secret, a mask is indistinguishable from fair bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from eigenveil.errors import Code, InternalError, PeerError
from eigenveil.numerics.encoding import IntArray, WordArray, digest_of, is_digest
from eigenveil.protocol.query import RoundQuery
from eigenveil.signatures import Extensible, Sign, SignedStatement
from eigenveil.study.study import MAX_ATTEMPTS, MAX_SITES, NAME

ATTEMPT_SIGNED = b"eigenveil/attempt-signature/v1\n"
MOST_BYTES = 200 * MAX_SITES


@dataclass(frozen=True, kw_only=True)
class Attempt(Extensible):
    """Sites whose masked answers to a query are added: `members` maps a site to the digest of its key for the
    study.
    `number` counts the attempts at a round from 1. Raises PeerError: code `protocol`, a field is invalid."""

    format, noun = "eigenveil-attempt/1", "the attempt at a masked round"

    plan: str
    round: int
    query: str
    number: int
    members: Mapping[str, str]

    def __post_init__(self) -> None:
        digests = (self.plan, self.query, *self.members.values())
        hexed = all(map(is_digest, digests))
        named = all(NAME.fullmatch(name) for name in self.members)
        whole = type(self.round) is int and type(self.number) is int
        counted = whole and self.round >= 0 and 1 <= self.number <= MAX_ATTEMPTS
        if not (hexed and named and counted and 2 <= len(self.members) <= MAX_SITES):
            raise PeerError(Code.PROTOCOL, "the attempt at a masked round has an invalid field")

    @classmethod
    def at(cls, round_query: RoundQuery, number: int, keys: Mapping[str, str]) -> Attempt:
        """Return attempt `number` at a query, for sites with these digests of keys."""
        return cls(
            plan=round_query.plan_digest,
            round=round_query.round,
            query=round_query.digest,
            number=number,
            members=dict(keys),
        )

    @property
    def sites(self) -> tuple[str, ...]:
        """Members, sorted by name."""
        return tuple(sorted(self.members))

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex), from which every mask of the attempt is derived."""
        return digest_of("attempt", self.signed_json)

    def is_of(self, round_query: RoundQuery) -> bool:
        """Return True if it is an attempt at exactly this query."""
        place = (round_query.plan_digest, round_query.round, round_query.digest)
        return (self.plan, self.round, self.query) == place

    def signed(self, sign: Sign) -> SignedAttempt:
        """Return the attempt with the signature of the release key."""
        return SignedAttempt(signed_json=self.signed_json, signature=sign(ATTEMPT_SIGNED + self.signed_json))


class SignedAttempt(SignedStatement[Attempt]):
    """Signed attempt at a masked round."""

    __slots__ = ()
    kind, prefix, most_bytes = Attempt, ATTEMPT_SIGNED, MOST_BYTES


MASK_DOMAIN = b"eigenveil/mask/v1\n"
AT_ONCE = 2**15  # words of a block, which stays in a core's cache
NONCE = bytes(16)  # a key is used once, so counter and nonce start at 0
ZEROS = bytes(8 * AT_ONCE)


def mask_key(secret: bytes, attempt: Attempt, one: str, other: str) -> bytes:
    """Return the 32-byte key of the mask between two members of `attempt` with the X25519 `secret`. It
    depends on their names, so that two pairs never share a mask, even with the same secret."""
    first, second = sorted((one, other))
    pair = f"{first}\n{second}\n".encode()
    info = MASK_DOMAIN + bytes.fromhex(attempt.digest) + pair
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)


def add_mask(values: WordArray, key: bytes, *, negative: bool) -> None:
    """Add the mask of `key` to `values`, or subtract it, modulo 2^64 and in place. Shape: values (n,),
    uint64."""
    stream = Cipher(ChaCha20(key, NONCE), mode=None).encryptor()
    drawn = bytearray(8 * min(AT_ONCE, values.size))
    words = np.frombuffer(drawn, dtype="<u8")
    for start in range(0, values.size, AT_ONCE):
        piece = values[start : start + AT_ONCE]
        stream.update_into(memoryview(ZEROS)[: 8 * piece.size], drawn)
        if negative:
            piece -= words[: piece.size]
        else:
            piece += words[: piece.size]


def masked(
    values: IntArray, share: IntArray, name: str, secrets: Mapping[str, bytes], attempt: Attempt
) -> IntArray:
    """Return the message of the site `name`: its exact answer, its noise share and its masks with all others.
    Shape: values and share (n,); written over `share`. `secrets` are its X25519 secrets with the other
    members of `attempt`, by name. Masks with members before it by name are added, the others subtracted.
    Privacy: [P31], with a share of `noise.shares.share_spec` [P32].
    Cost: one ChaCha20 stream of 8 n bytes for each other member."""
    others = [site for site in attempt.sites if site != name]
    if name not in attempt.members or secrets.keys() != set(others) or not share.flags.writeable:
        raise InternalError(Code.BUG, "the sites of a masked answer differ from those of its attempt")
    if values.shape != share.shape:
        raise InternalError(Code.BUG, "a masked answer and its noise share differ in length")
    words: WordArray = share.view(np.uint64)
    words += values.view(np.uint64)
    for other in others:
        add_mask(words, mask_key(secrets[other], attempt, name, other), negative=other > name)
    share.setflags(write=False)
    return share
