"""The other sites, as one kind of owners of cards."""

from __future__ import annotations

from pathlib import Path

from eigenveil.secure_aggregation.card import Card, SignedCard
from eigenveil_client.site.peers.keys import OwnKeys, made
from eigenveil_client.site.roster.kind import RosterKind


def _own(folder: Path) -> str | None:
    return OwnKeys.read(folder).card.fingerprint if made(folder) else None


PEERS: RosterKind[Card] = RosterKind(
    entries="peers",
    owner="site",
    voice=lambda name: f"the people of {name}",
    read=SignedCard,
    event="peer-key-changed",
    effect="nothing more is sent",
    without="If nothing is to be answered together with it",
    copied="one folder was copied from the other. At the copy, move peer.key away and run: eigenveil-site "
    "peers export",
    own=_own,
)
