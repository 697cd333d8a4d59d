"""The dictionary of the federation that this identity holds, in its folder: signed by the release key, and of
a version that never falls [R22]."""

from __future__ import annotations

from pathlib import Path

from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.signed import SignedDictionary
from eigenveil.errors import Code, PeerError
from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_common.files import is_there, read, write_durably
from eigenveil_common.locks import locked
from eigenveil_proto.v1 import eigenveil_pb2 as pb

NAME = "dictionary.json"
LOCK = "dictionary.lock"


def held_dictionary(stored: StoredIdentity) -> Dictionary | None:
    """The one that was fetched last; None if there is none, or if it is of another federation or release key
    than are trusted by now.

    Raises:
        InternalError: code `storage`.
    """
    signed = _held(stored.folder)
    return None if signed is None else _believed(signed, stored)


def _held(folder: Path) -> SignedDictionary | None:
    if not is_there(folder / NAME):
        return None
    try:
        written = parse_json(read(folder / NAME))
        said, signature = bytes.fromhex(written["said"]), bytes.fromhex(written["signature"])
    except (ValueError, KeyError, TypeError):
        return None  # what is damaged is fetched again
    return SignedDictionary(said=said, signature=signature)


def _believed(signed: SignedDictionary, stored: StoredIdentity) -> Dictionary | None:
    try:
        return signed.check(stored.release_key, stored.identity.federation)
    except PeerError:
        return None


def take_dictionary(stored: StoredIdentity, sent: pb.GetDictionaryResponse) -> Dictionary | None:
    """The dictionary that the coordinator sent, if it is signed and not older than the one held; durable.

    Raises:
        PeerError: code `identity`, it is not signed by the federation; `protocol`, an older version than was
            seen before, another one under the same version, or none any more.
        InternalError: code `storage`.
    """
    signed = SignedDictionary(said=sent.dictionary.said, signature=sent.dictionary.signature)
    with locked(stored.folder / LOCK):
        before = held_dictionary(stored)
        if not sent.HasField("dictionary"):
            _check_not_older(before, None)
            return None
        found = signed.check(stored.release_key, stored.identity.federation)
        _check_not_older(before, found)
        written = {"said": signed.said.hex(), "signature": signed.signature.hex()}
        if found != before:
            write_durably(stored.folder / NAME, canonical(written))
    return found


def _check_not_older(before: Dictionary | None, found: Dictionary | None) -> None:
    if before is None or found == before:
        return
    if found is None or found.version <= before.version:
        now = "none" if found is None else f"version {found.version}"
        raise PeerError(
            Code.PROTOCOL,
            f"the coordinator shows {now} of the dictionary, and version {before.version} was published "
            "before, saying something else; have its operator publish one of a higher version",
        )
