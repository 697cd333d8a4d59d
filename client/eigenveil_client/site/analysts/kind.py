"""Analysts, as one kind of owners of cards."""

from __future__ import annotations

from eigenveil.analyst_signature.card import AnalystCard, SignedAnalystCard
from eigenveil_client.site.roster.kind import RosterKind

ANALYSTS: RosterKind[AnalystCard] = RosterKind(
    entries="analysts",
    owner="analyst",
    voice=lambda name: name,
    read=SignedAnalystCard,
    event="analyst-key-changed",
    effect="no study of this analyst is answered",
    without="If this analyst is not to be answered any more",
    copied="each analyst makes a key of their own, so one of them has the other's. Ask both for new cards",
    own=lambda folder: None,
)
