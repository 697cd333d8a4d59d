"""Roster of key card owners, one file of each kind beside this site's identity, and its views [R28] [R30].
Only a person replaces a confirmed card; removed cards stay in the file as evidence. The fingerprint of an
unconfirmed card is not shown: its owner reads it out by telephone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic

from eigenveil.dictionary.site_rules import MAX_SIGNER_NAME_LENGTH, checked_text
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.key_cards import AnyCard, SignedKeyCard, typed_fingerprint
from eigenveil.numerics.encoding import parse_json
from eigenveil.signatures import is_newer
from eigenveil_client.site.roster.pins import (
    Confirmation,
    ConflictingCard,
    ImportOutcome,
    Pin,
    PinStatus,
    RosterContent,
    RosterKind,
    cards_by_owner,
)
from eigenveil_common.command import shell_command
from eigenveil_common.concurrency import locked
from eigenveil_common.files import check_owner, path_exists, read_secret, write_secret
from eigenveil_common.log import log_error

RESTORE_ADVICE = (
    "Restore the file from the backup; without a backup move it away, and import and confirm each key card "
    "again. Then start the daemon again"
)


OWN_DIGITS = "these are the digits of this site's own key card: type the digits that {reader} read"
OTHER_DIGITS = (
    "these are not the digits of the card of {name} that is here: have them read once more. If they differ "
    "again, get the file of {name} once more, by another way, and import it"
)


class RosterUnusable(RequestError):
    """Error for confirmed cards that are missing or unreadable. The process must end, and nothing is sent
    until they are restored. Code `bad-config`."""

    def __init__(self, why: str) -> None:
        super().__init__(Code.BAD_CONFIG, why)


class Roster(Generic[AnyCard]):
    """File of one kind in the identity's folder. Several processes of a site may write it. Each method reads
    the file, and its changes are durable on return.

    Raises:
        RosterUnusable: the file is damaged or a link, or others can read it.
        RequestError: code `bad-config`, the folder is another user's.
        InternalError: code `storage`."""

    def __init__(
        self, kind: RosterKind[AnyCard], folder: Path, clock: Callable[[], float] = time.time
    ) -> None:
        self.kind = kind
        self._path = folder / kind.file
        self._clock = clock

    def content(self) -> RosterContent[AnyCard]:
        """Return the whole content of the file."""
        if self._path.is_symlink():  # a dangling link is not a roster that was never made
            raise RosterUnusable(
                f"{self._path} is a link: replace it by the file itself, then start the daemon again"
            )
        if not path_exists(self._path):
            return RosterContent(kind=self.kind)
        try:
            return _read_content(self.kind, read_secret(self._path))
        except RequestError as problem:  # others can read it, or it has just been moved away
            raise RosterUnusable(str(problem)) from problem
        except (ValueError, KeyError, TypeError, PeerError) as problem:
            if is_newer(problem):
                raise RosterUnusable(str(problem)) from problem
            raise RosterUnusable(f"{self._path} is damaged. {RESTORE_ADVICE}") from problem

    def confirmed(self) -> Mapping[str, AnyCard]:
        """Return by name the cards that are confirmed and not changed."""
        return {
            name: one.card for name, one in self.content().pins.items() if one.status is PinStatus.CONFIRMED
        }

    def changed(self) -> Mapping[str, Pin[AnyCard]]:
        """Return by name the changed pins; a person must decide about each before anything more is sent."""
        return {name: one for name, one in self.content().pins.items() if one.status is PinStatus.CHANGED}

    def check_unchanged(self) -> None:
        """Require that no pin is changed; else raise code `conflict`, with what to do."""
        if changed := self.changed():
            advice = " ".join(conflict_advice(self.kind, pin) for pin in changed.values())
            raise RequestError(Code.CONFLICT, advice)

    def mark_changed(self, name: str, seen_digest: str) -> None:
        """Record and log that a card of this digest was shown in place of the confirmed card of `name`.

        Does nothing if no card of `name` is confirmed, or if this card is the confirmed one."""
        with self._writing() as (content, write):
            pin = content.pins.get(name)
            if pin is None or pin.confirmed is None or pin.card.digest == seen_digest:
                return
            conflict = pin.conflict or ConflictingCard(digest=seen_digest, at=self._now())
            write(content.with_pin(replace(pin, conflict=conflict)))
        log_error(self.kind.event, **{self.kind.owner: name}, here=pin.card.digest, there=seen_digest)

    def import_cards(
        self,
        cards: Iterable[SignedKeyCard[AnyCard]],
        federation: str,
        site_card: AnyCard | None = None,
        *,
        replacing: bool,
    ) -> dict[str, ImportOutcome]:
        """Import cards, all or none; return the result by owner. `site_card` is this site's own card. A
        confirmed card is replaced only if `replacing`, and its successor must be confirmed.

        Raises:
            RequestError: code `conflict`, a card is of another federation, claims this site's name, has the
                keys of another, or would replace a confirmed one; or two cards claim one name.
            PeerError: a card is invalid (`SignedKeyCard.check`)."""
        outcomes: dict[str, ImportOutcome] = {}
        with self._writing() as (content, write):
            for owner, signed in cards_by_owner(cards).items():
                content, outcomes[owner] = content.import_card(
                    signed, federation, site_card, replacing=replacing, now=self._now()
                )
            write(content)
        return outcomes

    def confirm(self, name: str, fingerprint: str, by: str) -> Pin[AnyCard]:
        """Confirm the card of `name`, whose owner read the `fingerprint` to the person `by`. This also
        resolves a marked change.

        Raises:
            RequestError: code `not-found`, no such card; `bad-argument`, an invalid fingerprint or name.
            PeerError: code `identity`, the fingerprint is of another card."""
        by, typed = checked_text(by, MAX_SIGNER_NAME_LENGTH), typed_fingerprint(fingerprint)
        with self._writing() as (content, write):
            pin = content.of(name)
            if typed != pin.card.fingerprint:
                own = self.kind.own(self._path.parent)
                mine = own is not None and typed == own.fingerprint
                reason = (OWN_DIGITS if mine else OTHER_DIGITS).format(
                    name=name, reader=self.kind.reader.format(name)
                )
                raise PeerError(Code.IDENTITY, f"{reason}; nothing was confirmed")
            same = [one.until for one in content.earlier if one.card == pin.card]
            at = max([self._now(), *(until + 1 for until in same if until is not None)])
            pin = replace(pin, confirmed=Confirmation(by=by, at=at), conflict=None)
            write(content.with_pin(pin))
        return pin

    def remove(self, name: str) -> None:
        """Remove the card of `name`; it stays in the file as evidence. Raises as `RosterContent.of`."""
        with self._writing() as (content, write):
            write(content.without(content.of(name), self._now()))

    @contextmanager
    def _writing(self) -> Iterator[tuple[RosterContent[AnyCard], Callable[[RosterContent[AnyCard]], None]]]:
        """Lock the file; yield its content and the function that writes it."""
        check_owner(self._path.parent)
        with locked(self._path.parent):
            yield self.content(), self._write

    def _write(self, content: RosterContent[AnyCard]) -> None:
        write_secret(self._path, json.dumps(content.to_dict(), indent=2).encode())

    def _now(self) -> int:
        return int(self._clock())


def conflict_advice(kind: RosterKind[AnyCard], pin: Pin[AnyCard]) -> str:
    """Return what to do about a confirmed card in whose place another one was shown."""
    name, command = pin.card.owner, kind.command
    return (
        f"The coordinator showed another key card of {name} than the one that is pinned here, so it may be "
        f"forging the identity of {name}; {kind.change_effect}. Telephone {name}, at a number that you know. "
        f"If the digits are those of the pinned card: {command} confirm {name} --config site.toml, and speak "
        f"to the coordinator's operator. If there is a new card, get its file: {command} import FILE "
        f"--replace --config site.toml, and confirm that. {kind.without}: {command} remove {name} --config "
        "site.toml."
    )


OUTCOME_TEXT = {
    ImportOutcome.NEW: "new here",
    ImportOutcome.KNOWN: "the same card is already here",
    ImportOutcome.REPLACED: "replaces the card that was here, which is stored as removed",
    ImportOutcome.OWN: "this site's own card, not imported",
}


def import_result(
    outcomes: Mapping[str, ImportOutcome], content: RosterContent[AnyCard], config_file: Path
) -> tuple[dict[str, Any], str]:
    """Return the outcome for each card with the present status of its owner's pin, as plain values and as
    text with the commands to run next."""
    kind, rows, lines, todo = content.kind, [], [], []
    for name, outcome in outcomes.items():
        status = content.pins[name].status.value if name in content.pins else None
        rows.append({kind.owner: name, "outcome": outcome.value, "status": status})
        shown = {None: "", PinStatus.IMPORTED.value: ", not confirmed yet"}.get(status, f", {status}")
        lines.append(f"{name}: {OUTCOME_TEXT[outcome]}{shown}")
        if status not in (None, PinStatus.CONFIRMED.value):
            todo.append(f"  {shell_command(*kind.command.split(), 'confirm', name, '--config', config_file)}")
    if todo:
        lines.append(
            "Telephone each owner, at a number that is not from the file, and type the digits you hear:"
        )
    return {"cards": rows}, "\n".join(lines + todo)


def pin_row(kind: RosterKind[AnyCard], pin: Pin[AnyCard]) -> dict[str, Any]:
    confirmed, conflict = pin.confirmed, pin.conflict
    return {
        kind.owner: pin.card.owner,
        "status": pin.status.value,
        "key_card": pin.card.digest,
        "fingerprint": pin.card.fingerprint if pin.status is PinStatus.CONFIRMED else None,
        "by": confirmed and confirmed.by,
        "confirmed": confirmed and confirmed.at,
        "seen": conflict and conflict.digest,
        "until": pin.until,
    }


def pin_rows(kind: RosterKind[AnyCard], folder: Path) -> dict[str, Any]:
    """Return the header of the roster in an identity's `folder`, the pins by name, and the removed ones.
    Raises as `Roster` and `RosterKind.header`."""
    content = Roster(kind, folder).content()
    pins = [pin_row(kind, content.pins[name]) for name in sorted(content.pins)]
    earlier = [pin_row(kind, one) for one in content.earlier]
    return {**kind.header(folder), kind.entries: pins, "earlier": earlier}


@lru_cache(maxsize=4)
def _read_content(kind: RosterKind[AnyCard], written: bytes) -> RosterContent[AnyCard]:
    """Return the content of a file's bytes, which every answer reads; parsed once. Raises as
    `RosterContent.from_dict`."""
    return RosterContent.from_dict(kind, parse_json(written))
