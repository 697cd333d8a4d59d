"""Vectors of masked rounds [R28] [R29] [R36]: three sites whose private keys every reader may know, a query,
two attempts at it, and what the sites send."""

from __future__ import annotations

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from eigenveil.aggregation import Contribution
from eigenveil.key_cards import SignedSiteKeyCard, SiteKeyCard
from eigenveil.numerics.encoding import frozen, to_bytes
from eigenveil.secure_aggregation.masking import Attempt, add_mask, mask_key, masked
from eigenveil.secure_aggregation.study_keys import STUDY_KEY_SIGNED, StudyKey
from tests.support import DIGEST
from tests.vectors.authorizations import signed_vector

SITES = ("east", "north", "south")
LONG = 17  # integers: more than two blocks of a stream
QUERY = "cd" * 32
RELEASE_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
ENDS = [2**63 - 1, -(2**63), 0, -1]


def agreement(site: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(site.encode().ljust(32, b"a"))


def signing(site: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(site.encode().ljust(32, b"s"))


def card(site: str) -> SiteKeyCard:
    return SiteKeyCard(
        federation="vectors",
        site=site,
        signing=signing(site).public_key().public_bytes_raw(),
    )


def study_key(site: str) -> StudyKey:
    public = agreement(site).public_key().public_bytes_raw()
    return StudyKey(plan=DIGEST, site=site, card=card(site).digest, agreement=public)


def secret(site: str, other: str) -> bytes:
    return agreement(site).exchange(agreement(other).public_key())


def cards() -> dict[str, Any]:
    """Cards, private keys for a study and their statements; and statements that must be refused."""
    good, keys = {}, {}
    for site in SITES:
        one = SignedSiteKeyCard.of(card(site), signing(site).sign)
        good[site] = {
            **signed_vector(one),
            "digest": card(site).digest, "fingerprint": card(site).fingerprint,
        }  # fmt: skip
        keys[site] = {
            "private": agreement(site).private_bytes_raw().hex(),
            **signed_vector(study_key(site).signed(signing(site).sign)),
            "digest": study_key(site).digest,
        }
    key, message = study_key("east").agreement.hex(), study_key("east").signed_json
    spoiled = {
        "low order": message.replace(key.encode(), b"00" * 32),
        "beyond the prime": message.replace(key.encode(), b"f0" + b"ff" * 30 + b"7f"),
        "not canonical": message.replace(b'{"agreement"', b'{ "agreement"'),
        "no name": message.replace(b'"east"', b'"East"'),
    }
    sign = signing("east").sign
    bad = {
        n: {"signed_json": s.decode(), "signature": sign(STUDY_KEY_SIGNED + s).hex()}
        for n, s in spoiled.items()
    }
    return {"cards": good, "keys": keys, "bad": bad}


def attempt(number: int, *sites: str) -> Attempt:
    members = {site: study_key(site).digest for site in sites}
    return Attempt(plan=DIGEST, round=3, query=QUERY, number=number, members=members)


def sent(of: Attempt) -> dict[str, Any]:
    """An attempt: its keys, the first words of its masks, and all answers."""
    stated = of.signed(RELEASE_KEY.sign)
    masks, answers = {}, {}
    for i, site in enumerate(of.sites):
        for other in of.sites[i + 1 :]:
            key, words = mask_key(secret(site, other), of, site, other), np.zeros(LONG, dtype=np.uint64)
            add_mask(words, key, negative=False)
            shown = [f"{word:016x}" for word in words.tolist()]
            masks[f"{site} {other}"] = {"secret": secret(site, other).hex(), "key": key.hex(), "words": shown}
        values = frozen([*ENDS, *range(i, LONG + i - len(ENDS))])
        share = np.arange(LONG, dtype=np.int64) * (-1) ** i * 10**15
        secrets = {other: secret(site, other) for other in of.sites if other != site}
        hidden = masked(values, share.copy(), site, secrets, of)
        message = Contribution(
            plan_digest=of.plan, round=of.round, query=of.query, site=site, values=hidden, attempt=of.digest
        )
        answers[site] = {
            "values": to_bytes(values).hex(), "share": to_bytes(share).hex(),
            "masked": to_bytes(hidden).hex(), "contribution": message.digest,
        }  # fmt: skip
    return {
        **signed_vector(stated), "digest": of.digest, "masks": masks, "answers": answers,
    }  # fmt: skip


def masked_vectors() -> dict[str, Any]:
    """Cards, an attempt of three sites, and the next one without the second."""
    whole, rest = attempt(1, *SITES), attempt(2, "east", "south")
    return {
        **cards(),
        "release_key": RELEASE_KEY.public_key().public_bytes_raw().hex(),
        "attempts": [sent(whole), sent(rest)],
    }
