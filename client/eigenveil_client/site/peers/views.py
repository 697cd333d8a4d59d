"""What a site's commands tell of its own card and of the other sites' cards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from eigenveil.secure_aggregation.card import Card
from eigenveil.study.study import Trust
from eigenveil_client.site.peers.keys import OwnKeys, made
from eigenveil_client.site.peers.kind import PEERS
from eigenveil_client.site.roster import views
from eigenveil_client.site.roster.pin import Standing
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.trust import TrustRules
from eigenveil_common.doctor import Check, ok, warn

NOTHING = 'no study can be answered: site.toml allows trust = "secure-aggregation" alone'


def own_card(card: Card) -> dict[str, Any]:
    """This site's card, with the digits that others must hear."""
    return {
        "site": card.site,
        "federation": card.federation,
        "card": card.digest,
        "fingerprint": card.fingerprint,
    }


def exported(card: Card, out: Path) -> str:
    """What to do with a file, and with the digits that are not in it."""
    return (
        f"wrote {out}: send it to the people of the other sites, by mail if you like; it holds no secret\n"
        f"The digits of {card.site} in federation {card.federation}:\n\n"
        f"    {card.fingerprint}\n\n"
        "Do not send these. The people of each other site call you, at a number that they did not get with "
        "the file, and type what you read to them: so they know that the file is yours."
    )


def listed(folder: Path) -> dict[str, Any]:
    """This site's card, the peers by name, and what was put aside. Raises as `OwnKeys.read` and `Roster`."""
    own = own_card(OwnKeys.read(folder).card) if made(folder) else None
    return {"own": own, **views.listed(Roster(PEERS, folder).held())}


def check_peers(folder: Path, secrecy: TrustRules) -> Check:
    """Whether studies could be answered whose coordinator sees no site's numbers, and whether others are.
    Raises as `listed`, and as `Roster.check_unchanged`."""
    roster = Roster(PEERS, folder)
    roster.check_unchanged()
    told, ever = listed(folder), roster.held().ever_confirmed
    alone = secrecy.trust == (Trust.SECURE_AGGREGATION.value,)
    if told["own"] is None and not told["peers"] and not ever:
        if alone:
            return warn("peers", NOTHING, "make this site's card: eigenveil-site peers export")
        return ok("peers", "none, and no card of this site: whatever it answers, the coordinator sees")
    count = Counter(row["standing"] for row in told["peers"])
    unconfirmed = count[Standing.IMPORTED.value]
    said = f"cards of other sites: {count[Standing.CONFIRMED.value]} confirmed, {unconfirmed} not confirmed"
    said += f"; {_answered(secrecy, ever=ever)}"
    if told["own"] is None:
        return warn("peers", f"{said}; this site has none", "make it: eigenveil-site peers export")
    if alone and not told["peers"]:
        return warn("peers", NOTHING, "take in the cards of other sites: eigenveil-site peers import FILES")
    if unconfirmed:
        return warn("peers", said, "telephone their people: eigenveil-site peers confirm NAME")
    return ok("peers", said)


def _answered(secrecy: TrustRules, *, ever: bool) -> str:
    """Which studies the cards and site.toml leave."""
    if secrecy.trust:
        return f"site.toml allows trust = {', '.join(secrecy.trust)}"
    return "masked studies alone are answered" if ever else "the coordinator sees what central studies ask"
