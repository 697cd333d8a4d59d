"""The list of authorities that this identity trusts, in its folder: it changes only to one that the list
before it vouches for, and never goes back [R19]; or to that of a new join file, with which trust begins anew.

Whoever calls may send lists; only signatures decide. A change is logged with the fingerprints.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.protocol.authorities import AuthorityList, difference, follow, list_from_json
from eigenveil.protocol.wire import lists_from_proto
from eigenveil_common.files import is_there, read, write_durably
from eigenveil_common.locks import locked
from eigenveil_common.log import alarm, event
from eigenveil_proto.v1 import eigenveil_pb2 as pb

NAME = "authorities.json"
LOCK = "authorities.lock"  # one process at a time reads, compares and writes: the version never falls


def held_list(folder: Path) -> AuthorityList:
    """The list in force.

    Raises:
        RequestError: there is none, or it is damaged.
    """
    if not is_there(folder / NAME):
        raise RequestError(
            Code.BAD_CONFIG,
            f"{folder} holds no list of authorities; enrol again with a new join file from the coordinator's "
            "operator",
        )
    try:
        return list_from_json(read(folder / NAME))
    except PeerError as problem:
        raise RequestError(
            Code.BAD_CONFIG, f"{folder / NAME} is damaged; enrol again with a new join file"
        ) from problem


def walk(held: AuthorityList, sent: Sequence[pb.SignedAuthorities]) -> AuthorityList:
    """The last of the lists that were sent, all of which must follow.

    Raises:
        PeerError: one does not follow, which is logged; nothing is believed then.
    """
    try:
        return follow(held, lists_from_proto(sent), datetime.now(UTC))
    except PeerError as problem:
        alarm("authorities-refused", version=held.version, code=problem.code.value, detail=problem)
        raise


def take(folder: Path, shown: AuthorityList, sent: Sequence[pb.SignedAuthorities]) -> AuthorityList:
    """The list in force after what was sent upon showing `shown`; it is durable.

    Raises:
        PeerError: as `walk`. InternalError: code `storage`.
    """
    with locked(folder / LOCK):
        held = held_list(folder)
        if not sent or held != shown:  # another process was told meanwhile
            return held
        after = walk(held, sent)
        write_durably(folder / NAME, after.to_json())
    _tell_change(held, after)
    return after


def begin(folder: Path, one: AuthorityList) -> None:
    """Have this list in force by the word of whoever gave a join file: the one way in which the version may
    fall, and it is told.

    Raises:
        InternalError: code `storage`; what was in force before still is.
    """
    with locked(folder / LOCK):
        try:
            before = held_list(folder)
        except RequestError:  # none yet, or damaged, which enrolling anew mends
            before = None
        write_durably(folder / NAME, one.to_json())
    if before is not None and before != one:
        _tell_change(before, one)


def _tell_change(before: AuthorityList, after: AuthorityList) -> None:
    """Log a change, for the operator of this end."""
    detail = f"after version {before.version}: {difference(before, after)}"
    event("authorities-changed", logging.WARNING, version=after.version, detail=detail)
