"""People of hospitals who exchange cards."""

from __future__ import annotations

from pathlib import Path

from eigenveil.key_cards import SignedSiteKeyCard, SiteKeyCard, cards_to_file
from eigenveil_client.site.roster.peers import PEERS, SiteKeys
from eigenveil_client.site.roster.roster import Roster
from tests.client.site.support import FEDERATION, Stage
from tests.core.secure_aggregation import cards

AT = 1_800_000_000


def theirs(site: str = "hospital-b", seed: int = 7, federation: str = FEDERATION) -> SignedSiteKeyCard:
    return cards.signed_card(site, seed, federation)


def mailed(folder: Path, *signed: SignedSiteKeyCard, name: str = "mail.peer") -> Path:
    path = folder / name
    path.write_bytes(cards_to_file(signed))
    return path


def own(stage: Stage) -> SiteKeyCard:
    return SiteKeys.make(stage.config.identity).card


def roster(stage: Stage) -> Roster[SiteKeyCard]:
    return Roster(PEERS, stage.config.identity, clock=lambda: AT)


def knowing(stage: Stage, *signed: SignedSiteKeyCard) -> Roster[SiteKeyCard]:
    one = roster(stage)
    one.import_cards(signed, own(stage).federation, own(stage), replacing=False)
    for card in (each.check() for each in signed):
        one.confirm(card.site, card.fingerprint, "Kim")
    return one
