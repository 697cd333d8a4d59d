"""A federation's dictionary as its operator published it: signed, in versions that rise [R22]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.toml import dictionary_from_dict, dictionary_to_dict
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil.signed import check_signature
from eigenveil.study.checks import need

DICTIONARY_SIGNED = b"eigenveil/dictionary-signature/v1\n"
MOST_BYTES = 2**20

Sign = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedDictionary:
    """The canonical JSON of a federation's name and its dictionary, and the Ed25519 signature over it."""

    said: bytes
    signature: bytes

    def check(self, release_key: bytes, federation: str) -> Dictionary:
        """The dictionary, if the release key (raw Ed25519) of `federation` signed these very bytes.

        Raises:
            PeerError: code `identity`, signed by another key, changed, or another federation's; `protocol`,
                it is no dictionary.
        """
        if len(self.said) > MOST_BYTES:
            raise PeerError(Code.PROTOCOL, f"a dictionary of {len(self.said)} bytes is too long")
        check_signature(
            release_key,
            self.signature,
            DICTIONARY_SIGNED + self.said,
            "the dictionary is not signed by this federation; it was not believed",
        )
        named, dictionary = self.read()
        if named != federation:
            raise PeerError(Code.IDENTITY, f"the dictionary is of federation {named}; it was not believed")
        return dictionary

    def read(self) -> tuple[str, Dictionary]:
        """The federation and the dictionary, signed or not.

        Raises:
            PeerError: code `protocol`, they are none.
        """
        try:
            stated = parse_json(self.said)
            return str(stated["federation"]), dictionary_from_dict(stated["dictionary"])
        except (ValueError, KeyError, TypeError, AttributeError, RequestError) as problem:
            raise PeerError(
                Code.PROTOCOL, f"the federation's dictionary cannot be read: {problem}"
            ) from problem


def sign_dictionary(dictionary: Dictionary, federation: str, sign: Sign) -> SignedDictionary:
    """A dictionary under the release key of `federation`.

    Raises:
        RequestError: code `bad-study`, it is too long for a message.
    """
    said = canonical({"federation": federation, "dictionary": dictionary_to_dict(dictionary)})
    need(
        len(said) <= MOST_BYTES,
        f"this dictionary has {len(said)} bytes, and {MOST_BYTES} can be published: shorten its texts",
    )
    return SignedDictionary(said=said, signature=sign(DICTIONARY_SIGNED + said))
