"""authorities.json: the lists of authorities that were in force, oldest first, each with its signatures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.numerics.encoding import parse_json
from eigenveil.protocol.authorities import AuthorityList, SignedList, list_from_json, next_list
from eigenveil_common.files import is_there, read, write_durably

MISSING = (
    "holds no list of authorities yet. After init --csr: eigenveil-coordinator ca import, then ca accept. "
    "In a folder of an earlier version: eigenveil-coordinator ca extend"
)


def check_begun(path: Path) -> None:
    """Insist that there is a first list.

    Raises:
        RequestError: there is none.
    """
    if not is_there(path):
        raise RequestError(Code.BAD_CONFIG, f"{path.parent} {MISSING}")


def read_chain(path: Path) -> tuple[SignedList, ...]:
    """The lists, oldest first.

    Raises:
        RequestError: there are none, or the file is damaged.
    """
    check_begun(path)
    try:
        return tuple(
            SignedList(
                list_json=one["list"].encode(),
                signatures=tuple(bytes.fromhex(signature) for signature in one["signatures"]),
            )
            for one in parse_json(read(path))
        )
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise RequestError(Code.BAD_CONFIG, f"{path} is damaged; restore it from the backup") from problem


def write_chain(path: Path, chain: Sequence[SignedList]) -> None:
    """Replace the lists.

    Raises:
        InternalError: code `storage`.
    """
    said = [
        {"list": one.list_json.decode(), "signatures": [signature.hex() for signature in one.signatures]}
        for one in chain
    ]
    write_durably(path, json.dumps(said, indent=2).encode() + b"\n")


def walked(chain: Sequence[SignedList]) -> AuthorityList:
    """The list in force: the last one, if enough have signed each.

    Raises:
        RequestError: somebody has changed the file.
    """
    try:
        held = list_from_json(chain[0].list_json)
        if not held.is_signed(chain[0]):
            raise ValueError("the first list is not signed")
        for one in chain[1:]:
            held = next_list(held, one)
    except (EigenveilError, ValueError, IndexError) as problem:
        raise RequestError(
            Code.BAD_CONFIG, f"authorities.json is damaged ({problem}); restore it from the backup"
        ) from problem
    return held
