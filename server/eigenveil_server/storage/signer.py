"""The analyst's signature under a stored study, and the key that gave it."""

from __future__ import annotations

from eigenveil.analyst_signature.authorization import SignedAuthorization, authorization_from_proto
from eigenveil.analyst_signature.card import AnalystCard
from eigenveil_server.storage.study_reads import StoredStudy


def authorization_of(stored: StoredStudy) -> SignedAuthorization | None:
    """The signature that came with a study; None for one from before analysts signed."""
    plan = stored.signed_plan
    return authorization_from_proto(plan.authorization) if plan.HasField("authorization") else None


def signer(stored: StoredStudy) -> AnalystCard | None:
    """The card of the key that signed a study. Whose key that is, the people of the sites say.

    Raises:
        PeerError: what is stored does not hold.
    """
    signed = authorization_of(stored)
    return None if signed is None else signed.card.check()
