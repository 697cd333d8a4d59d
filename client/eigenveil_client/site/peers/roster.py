"""The other sites whose cards are here, in a file beside this site's identity [R28].

Commands write it, also while the daemon runs, which reads it anew at each use. A card that a person confirmed
is replaced by a person alone; what was replaced or removed stays in the file, as evidence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.key_cards.fingerprint import typed_fingerprint
from eigenveil.numerics.encoding import parse_json
from eigenveil.secure_aggregation.card import Card, SignedCard
from eigenveil.study.consent import LONGEST_NAME, checked_text
from eigenveil_client.site.peers.keys import OwnKeys, made
from eigenveil_client.site.peers.peer import Confirmation, Peer, Sighting, Standing
from eigenveil_client.site.peers.roster_content import Outcome, RosterContent, one_each
from eigenveil_common.files import check_owner, is_there, read_secret, write_secret
from eigenveil_common.locks import locked
from eigenveil_common.log import alarm

NAME = "peers.json"


class Roster:
    """The file in the identity's folder. Several processes of a site may write it. Each method reads it, and
    what it changes is durable on return.

    Raises:
        RequestError: code `bad-config`, the file is damaged, or others can read it.
        InternalError: code `storage`.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = folder / NAME
        self._clock = clock

    def held(self) -> RosterContent:
        """All that is in it."""
        if not is_there(self._path):
            return RosterContent()
        try:
            return RosterContent.from_dict(parse_json(read_secret(self._path)))
        except (ValueError, KeyError, TypeError, PeerError) as problem:
            raise RequestError(
                Code.BAD_CONFIG,
                f"{self._path} is damaged: put it back from a copy. If there is none, move it away, then "
                "import and confirm each site's card again, by telephone",
            ) from problem

    def confirmed(self) -> Mapping[str, Card]:
        """By name, the cards that a person here has confirmed and that nothing contradicted since."""
        return {
            name: one.card for name, one in self.held().peers.items() if one.standing is Standing.CONFIRMED
        }

    def changed(self) -> Mapping[str, Peer]:
        """By name, the peers about whom a person must decide before anything more is sent."""
        return {name: one for name, one in self.held().peers.items() if one.standing is Standing.CHANGED}

    def check_unchanged(self) -> None:
        """Insist that there are none.

        Raises:
            RequestError: code `conflict`; it says the ways on.
        """
        changed = self.changed()
        if changed:
            raise RequestError(Code.CONFLICT, " ".join(map(_contradicted, changed.values())))

    def mark_changed(self, name: str, seen_digest: str) -> None:
        """Write down, and alarm, that a card of this digest was shown in place of the confirmed one of site
        `name`. Where none is confirmed, or that very one, nothing is contradicted."""
        with self._writing() as (held, write):
            peer = held.peers.get(name)
            if peer is None or peer.confirmed is None or peer.card.digest == seen_digest:
                return
            seen = peer.seen or Sighting(digest=seen_digest, at=self._now())
            write(held.having(replace(peer, seen=seen)))
        alarm("peer-key-changed", site=name, here=peer.card.digest, there=seen_digest)

    def take(self, cards: Iterable[SignedCard], own: Card, *, replacing: bool) -> dict[str, Outcome]:
        """Import cards, all or none; by site, what became of each. `own` is this site's. A card that was
        confirmed gives way only if `replacing`, and its successor has to be confirmed.

        Raises:
            RequestError: code `conflict`, a card is of another federation, claims this site's name, has the
                keys of another, or would replace a confirmed one; or two cards claim one name.
            PeerError: a card does not hold (`SignedCard.check`).
        """
        outcomes: dict[str, Outcome] = {}
        with self._writing() as (held, write):
            for site, signed in one_each(cards).items():
                held, outcomes[site] = held.taking(signed, own, replacing=replacing, now=self._now())
            write(held)
        return outcomes

    def confirm(self, name: str, digits: str, by: str) -> Peer:
        """Trust the card of site `name`, whose people have read these `digits` to `by`. A change that was
        marked is decided by it.

        Raises:
            RequestError: code `not-found`, no such card; `bad-argument`, these are no digits, or no name.
            PeerError: code `identity`, they are another card's.
        """
        word = Confirmation(by=checked_text(by, LONGEST_NAME), at=self._now())
        typed = typed_fingerprint(digits)
        with self._writing() as (held, write):
            peer = held.of(name)
            if typed != peer.card.fingerprint:
                raise PeerError(Code.IDENTITY, f"{self._unlike(name, typed)}; nothing was confirmed")
            peer = replace(peer, confirmed=word, seen=None)
            write(held.having(peer))
        return peer

    def _unlike(self, name: str, typed: str) -> str:
        folder = self._path.parent
        if made(folder) and typed == OwnKeys.read(folder).card.fingerprint:
            return f"these are the digits of this site's own card: type those that the people of {name} read"
        return (
            f"these are not the digits of the card of {name} that is here: have them read once more. If they "
            f"differ again, this card is not {name}'s, or not its newest: get the file once more, by another "
            "way, and import that"
        )

    def remove(self, name: str) -> None:
        """Put the card of site `name` aside: no study is answered together with it any more.

        Raises:
            RequestError: code `not-found`, no such card.
        """
        with self._writing() as (held, write):
            write(held.without(held.of(name), self._now()))

    @contextmanager
    def _writing(self) -> Iterator[tuple[RosterContent, Callable[[RosterContent], None]]]:
        """What is in the file, which nobody else changes meanwhile, and how to replace it."""
        check_owner(self._path.parent)
        with locked(self._path.parent):
            yield self.held(), self._write

    def _write(self, held: RosterContent) -> None:
        write_secret(self._path, json.dumps(held.to_dict(), indent=2).encode())

    def _now(self) -> int:
        return int(self._clock())


def _contradicted(peer: Peer) -> str:
    name, command = peer.card.site, "eigenveil-site peers"
    return (
        f"The coordinator showed another card of {name} than the one that is held here, so it may be lying "
        f"about who {name} is; nothing more is sent. Telephone {name}, at a number of your own. If it still "
        f"reads the digits of the card that is here: {command} confirm {name} --config site.toml, and speak "
        f"to the coordinator's operator. If it has made a new card, get its file: {command} import FILE "
        f"--replace --config site.toml, and confirm that. If nothing is to be answered together with it: "
        f"{command} remove {name} --config site.toml."
    )
