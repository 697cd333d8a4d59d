"""What a site's commands tell of cards: plain values, and words for the person at the telephone.

The digits of a card that nobody has confirmed are never shown: they are to be heard from its owner, and not
copied from the screen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eigenveil.secure_aggregation.card import Card
from eigenveil_client.site.peers.keys import OwnKeys, made
from eigenveil_client.site.peers.peer import Peer, Standing
from eigenveil_client.site.peers.roster import Roster
from eigenveil_client.site.peers.roster_content import Outcome, RosterContent
from eigenveil_common.command import typed
from eigenveil_common.doctor import Check, ok, warn

BECAME = {
    Outcome.NEW: "new here",
    Outcome.KNOWN: "this very card is here",
    Outcome.REPLACED: "in place of the card that was here, which is kept",
    Outcome.OWN: "this site's own, left out",
}

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


def imports(outcomes: Mapping[str, Outcome], held: RosterContent) -> dict[str, Any]:
    """What became of each card, and what is held of its site now."""
    peers = {site: held.peers.get(site) for site in outcomes}
    return {
        "cards": [
            {"site": site, "outcome": outcomes[site].value, "standing": one and one.standing.value}
            for site, one in peers.items()
        ]
    }


def imported(told: dict[str, Any], config_file: Path) -> str:
    """The same for a person, with the commands that must follow."""
    rows = told["cards"]
    lines = [f"{row['site']}: {BECAME[Outcome(row['outcome'])]}{_standing(row['standing'])}" for row in rows]
    waiting = [row["site"] for row in rows if row["standing"] not in (None, Standing.CONFIRMED.value)]
    if waiting:
        call = "Telephone each of them, at a number that did not come with the file, and type what you hear:"
        command = ("eigenveil-site", "peers", "confirm")
        lines += [call, *(f"  {typed(*command, site, '--config', config_file)}" for site in waiting)]
    return "\n".join(lines)


def _standing(stated: str | None) -> str:
    if stated is None:
        return ""
    return ", not confirmed yet" if stated == Standing.IMPORTED.value else f", {stated}"


def peer_row(peer: Peer) -> dict[str, Any]:
    """A peer as plain values."""
    confirmed, seen = peer.confirmed, peer.seen
    return {
        "site": peer.card.site,
        "standing": peer.standing.value,
        "card": peer.card.digest,
        "fingerprint": peer.card.fingerprint if peer.standing is Standing.CONFIRMED else None,
        "by": confirmed and confirmed.by,
        "confirmed": confirmed and confirmed.at,
        "seen": seen and seen.digest,
        "until": peer.until,
    }


def listed(folder: Path) -> dict[str, Any]:
    """This site's card, the peers by name, and what was put aside. Raises as `OwnKeys.read` and `Roster`."""
    held = Roster(folder).held()
    return {
        "own": own_card(OwnKeys.read(folder).card) if made(folder) else None,
        "peers": [peer_row(held.peers[name]) for name in sorted(held.peers)],
        "earlier": [peer_row(one) for one in held.earlier],
    }


def check_peers(folder: Path, *, alone: bool) -> Check:
    """Whether studies could be answered whose coordinator sees no site's numbers; `alone`: this site answers
    no others. Raises as `listed`, and as `Roster.check_unchanged`."""
    Roster(folder).check_unchanged()
    told = listed(folder)
    if told["own"] is None and not told["peers"]:
        if alone:
            return warn("peers", NOTHING, "make this site's card: eigenveil-site peers export")
        return ok("peers", "none, and no card of this site: whatever it answers, the coordinator sees")
    count = Counter(row["standing"] for row in told["peers"])
    unconfirmed = count[Standing.IMPORTED.value]
    said = f"cards of other sites: {count[Standing.CONFIRMED.value]} confirmed, {unconfirmed} not confirmed"
    if told["own"] is None:
        return warn("peers", f"{said}; this site has none", "make it: eigenveil-site peers export")
    if alone and not told["peers"]:
        return warn("peers", NOTHING, "take in the cards of other sites: eigenveil-site peers import FILES")
    if unconfirmed:
        return warn("peers", said, "telephone their people: eigenveil-site peers confirm NAME")
    return ok("peers", said)
