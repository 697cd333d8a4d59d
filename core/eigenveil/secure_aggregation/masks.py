"""Pairwise masks: what two sites add and take away, so that a sum over both has neither [P31].

A mask is the keystream of ChaCha20 under a key that HKDF derives from the pair's X25519 secret and the
attempt, read as little-endian integers modulo 2^64. Nobody without a secret of the pair tells it from fair
bits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from eigenveil.errors import Code, InternalError
from eigenveil.numerics.encoding import IntArray, Words
from eigenveil.secure_aggregation.attempt import Attempt

MASK_DOMAIN = b"eigenveil/mask/v1\n"
AT_ONCE = 2**15  # words: what is drawn and added stays in a core's cache
NONCE = bytes(16)  # a key is used once: counter and nonce begin at 0
ZEROS = bytes(8 * AT_ONCE)


def mask_key(secret: bytes, attempt: Attempt, one: str, other: str) -> bytes:
    """The key of the mask between two members of `attempt`, whose X25519 secret is `secret`. 32 bytes.

    Their names are in it, so that no two pairs share a mask even if they shared a secret.
    """
    first, second = sorted((one, other))
    pair = f"{first}\n{second}\n".encode()
    info = MASK_DOMAIN + bytes.fromhex(attempt.digest) + pair
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)


def add_mask(values: Words, key: bytes, *, negative: bool) -> None:
    """Add the mask of `key` to `values`, modulo 2^64 and in place, or take it away.

    Shape: values (n,), uint64.
    """
    stream = Cipher(ChaCha20(key, NONCE), mode=None).encryptor()
    drawn = bytearray(8 * min(AT_ONCE, values.size))
    words = np.frombuffer(drawn, dtype="<u8")
    for start in range(0, values.size, AT_ONCE):
        here = values[start : start + AT_ONCE]
        stream.update_into(memoryview(ZEROS)[: 8 * here.size], drawn)
        if negative:
            here -= words[: here.size]
        else:
            here += words[: here.size]


def masked(
    values: IntArray, share: IntArray, name: str, secrets: Mapping[str, bytes], attempt: Attempt
) -> IntArray:
    """What the site `name` sends: its exact answer, its share of the noise, and its masks with all others.

    Shape: values and share (n,); written over `share`. `secrets` are its X25519 secrets with the others of
    `attempt`, by name. Masks with those before it by name are added, with those behind it taken away.

    Privacy: [P31], with a share of `noise.shares.share_spec` [P32].
    Cost: one ChaCha20 stream of 8 n bytes for each other member.
    """
    others = [site for site in attempt.sites if site != name]
    if name not in attempt.members or secrets.keys() != set(others) or not share.flags.writeable:
        raise InternalError(Code.BUG, "an answer was to be masked for others than those of its set")
    if values.shape != share.shape:
        raise InternalError(Code.BUG, "an answer and its share of the noise differ in length")
    words: Words = share.view(np.uint64)
    words += values.view(np.uint64)
    for other in others:
        add_mask(words, mask_key(secrets[other], attempt, name, other), negative=other > name)
    share.setflags(write=False)
    return share
