"""The owners whose cards are here, in a file of each kind beside this site's identity [R28] [R30].

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
from typing import Generic

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.key_cards.fingerprint import typed_fingerprint
from eigenveil.key_cards.key_card import AnyCard, SignedKeyCard
from eigenveil.numerics.encoding import parse_json
from eigenveil.study.consent import LONGEST_NAME, checked_text
from eigenveil_client.site.roster.content import Outcome, RosterContent, one_each
from eigenveil_client.site.roster.kind import RosterKind
from eigenveil_client.site.roster.pin import Confirmation, Pin, Sighting, Standing
from eigenveil_common.files import check_owner, is_there, read_secret, write_secret
from eigenveil_common.locks import locked
from eigenveil_common.log import alarm

RESTORE = (
    "Put the file back from the backup; without one move it away, and import and confirm each card anew. "
    "Then start the daemon again"
)


class RosterUnusable(RequestError):
    """The cards that people here confirmed cannot be read, or are gone: the process must end, and nothing be
    sent, until they are back. Code `bad-config`."""

    def __init__(self, why: str) -> None:
        super().__init__(Code.BAD_CONFIG, why)


class Roster(Generic[AnyCard]):
    """The file of one kind in the identity's folder. Several processes of a site may write it. Each
    method reads it, and what it changes is durable on return.

    Raises:
        RosterUnusable: the file is damaged or a link, or others can read it.
        RequestError: code `bad-config`, the folder is another user's.
        InternalError: code `storage`.
    """

    def __init__(
        self, kind: RosterKind[AnyCard], folder: Path, clock: Callable[[], float] = time.time
    ) -> None:
        self.kind = kind
        self._path = folder / kind.file
        self._clock = clock

    def held(self) -> RosterContent[AnyCard]:
        """All that is in it."""
        if self._path.is_symlink():  # one that leads nowhere is no roster that was never made
            raise RosterUnusable(
                f"{self._path} is a link: put the file itself there, then start the daemon again"
            )
        if not is_there(self._path):
            return RosterContent(kind=self.kind)
        try:
            return RosterContent.from_dict(self.kind, parse_json(read_secret(self._path)))
        except RequestError as problem:  # others can read it, or it has just been moved away
            raise RosterUnusable(str(problem)) from problem
        except (ValueError, KeyError, TypeError, PeerError) as problem:
            raise RosterUnusable(f"{self._path} is damaged. {RESTORE}") from problem

    def confirmed(self) -> Mapping[str, AnyCard]:
        """By name, the cards that a person here has confirmed and that nothing contradicted since."""
        return {
            name: one.card for name, one in self.held().pins.items() if one.standing is Standing.CONFIRMED
        }

    def changed(self) -> Mapping[str, Pin[AnyCard]]:
        """By name, the owners about whom a person must decide before anything more is sent."""
        return {name: one for name, one in self.held().pins.items() if one.standing is Standing.CHANGED}

    def check_unchanged(self) -> None:
        """Insist that there are none.

        Raises:
            RequestError: code `conflict`; it says the ways on.
        """
        changed = self.changed()
        if changed:
            raise RequestError(
                Code.CONFLICT, " ".join(contradicted(self.kind, pin) for pin in changed.values())
            )

    def mark_changed(self, name: str, seen_digest: str) -> None:
        """Write down, and alarm, that a card of this digest was shown in place of the confirmed one of site
        `name`. Where none is confirmed, or that very one, nothing is contradicted."""
        with self._writing() as (held, write):
            pin = held.pins.get(name)
            if pin is None or pin.confirmed is None or pin.card.digest == seen_digest:
                return
            seen = pin.seen or Sighting(digest=seen_digest, at=self._now())
            write(held.having(replace(pin, seen=seen)))
        alarm(self.kind.event, **{self.kind.owner: name}, here=pin.card.digest, there=seen_digest)

    def take(
        self,
        cards: Iterable[SignedKeyCard[AnyCard]],
        federation: str,
        own: AnyCard | None = None,
        *,
        replacing: bool,
    ) -> dict[str, Outcome]:
        """Import cards, all or none; by owner, what became of each. `own` is this site's. A card that was
        confirmed gives way only if `replacing`, and its successor has to be confirmed.

        Raises:
            RequestError: code `conflict`, a card is of another federation, claims this site's name, has the
                keys of another, or would replace a confirmed one; or two cards claim one name.
            PeerError: a card does not hold (`SignedKeyCard.check`).
        """
        outcomes: dict[str, Outcome] = {}
        with self._writing() as (held, write):
            for owner, signed in one_each(cards).items():
                held, outcomes[owner] = held.taking(
                    signed, federation, own, replacing=replacing, now=self._now()
                )
            write(held)
        return outcomes

    def confirm(self, name: str, digits: str, by: str) -> Pin[AnyCard]:
        """Trust the card of `name`, of whom `by` has heard these `digits`. A change that was
        marked is decided by it.

        Raises:
            RequestError: code `not-found`, no such card; `bad-argument`, these are no digits, or no name.
            PeerError: code `identity`, they are another card's.
        """
        by, typed = checked_text(by, LONGEST_NAME), typed_fingerprint(digits)
        with self._writing() as (held, write):
            pin = held.of(name)
            if typed != pin.card.fingerprint:
                raise PeerError(Code.IDENTITY, f"{self._unlike(name, typed)}; nothing was confirmed")
            aside = [one.until for one in held.earlier if one.card == pin.card and one.until is not None]
            at = max(self._now(), *(until + 1 for until in aside)) if aside else self._now()
            pin = replace(pin, confirmed=Confirmation(by=by, at=at), seen=None)
            write(held.having(pin))
        return pin

    def _unlike(self, name: str, typed: str) -> str:
        if typed == self.kind.own(self._path.parent):
            voice = self.kind.voice(name)
            return f"these are the digits of this site's own card: type those that {voice} read"
        return (
            f"these are not the digits of the card of {name} that is here: have them read once more. If they "
            f"differ again, this card is not {name}'s, or not its newest: get the file once more, by another "
            "way, and import that"
        )

    def remove(self, name: str) -> None:
        """Put the card of `name` aside, as evidence.

        Raises:
            RequestError: code `not-found`, no such card.
        """
        with self._writing() as (held, write):
            write(held.without(held.of(name), self._now()))

    @contextmanager
    def _writing(self) -> Iterator[tuple[RosterContent[AnyCard], Callable[[RosterContent[AnyCard]], None]]]:
        """What is in the file, which nobody else changes meanwhile, and how to replace it."""
        check_owner(self._path.parent)
        with locked(self._path.parent):
            yield self.held(), self._write

    def _write(self, held: RosterContent[AnyCard]) -> None:
        write_secret(self._path, json.dumps(held.to_dict(), indent=2).encode())

    def _now(self) -> int:
        return int(self._clock())


def contradicted(kind: RosterKind[AnyCard], pin: Pin[AnyCard]) -> str:
    """What to do about a confirmed card in whose place another one was shown."""
    name, command = pin.card.owner, kind.command
    return (
        f"The coordinator showed another card of {name} than the one that is held here, so it may be lying "
        f"about who {name} is; {kind.effect}. Telephone {name}, at a number of your own. If you hear the "
        f"digits of the card that is here: {command} confirm {name} --config site.toml, and speak to the "
        f"coordinator's operator. If there is a new card, get its file: {command} import FILE --replace "
        f"--config site.toml, and confirm that. {kind.without}: {command} remove {name} --config site.toml."
    )
