"""How the list of authorities changes [R19].

The next one is signed by the keys that are here, and is in force if those are enough; otherwise it waits in
authorities.draft for signatures that are brought from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from eigenveil.errors import Code, RequestError
from eigenveil.protocol.authorities import (
    AUTHORITIES_SIGNED,
    AuthorityList,
    ListedAuthority,
    SignedList,
    list_from_json,
)
from eigenveil_common.failpoints import failpoint
from eigenveil_common.files import is_there, read, read_secret, write_durably, write_secret
from eigenveil_server.config import Files
from eigenveil_server.pki.authority import key_to_pem, keys_from_pem, new_key, pem, sign_list
from eigenveil_server.pki.authority_files import authority_of, certificates
from eigenveil_server.pki.chain import read_chain, walked, write_chain

LIFE = timedelta(days=365)


class Lists:
    """The lists and keys of one coordinator, as an operator's command changes them; serving or not.

    Raises:
        RequestError: a file is damaged, or ca.key can be read by others.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._read()

    def _read(self) -> None:
        files = self._files
        self.chain = read_chain(files.authorities) if is_there(files.authorities) else ()
        self.held = walked(self.chain) if self.chain else None
        self.keys = tuple(keys_from_pem(read_secret(files.ca_key)))

    @property
    def in_force(self) -> AuthorityList:
        """The list in force.

        Raises:
            RequestError: there is none yet.
        """
        return walked(read_chain(self._files.authorities)) if self.held is None else self.held

    @property
    def draft(self) -> AuthorityList | None:
        return list_of_draft(read(self._files.draft)) if is_there(self._files.draft) else None

    def change(
        self,
        authorities: Sequence[ListedAuthority],
        threshold: int,
        *,
        federation: str,
        release_key: bytes,
        now: datetime | None = None,
    ) -> bool:
        """Sign the next list with the keys that are here; whether it is in force by that, or waits."""
        following = AuthorityList(
            federation=federation,
            version=1 if self.held is None else self.held.version + 1,
            expires=int(((now or datetime.now(UTC)) + LIFE).timestamp()),
            threshold=threshold,
            release_key=release_key,
            authorities=tuple(authorities),
        )
        signed = self._signed(following)
        if self._enough(following, signed):
            self._publish(signed)
            return True
        write_durably(self._files.draft, AUTHORITIES_SIGNED + signed.list_json)
        return False

    def accept(self, signatures: Sequence[bytes]) -> None:
        """Put the draft in force, by these signatures and those of the keys that are here. Repeated after a
        crash, it goes on where that one ended.

        Raises:
            RequestError: there is no draft, it has been overtaken, or too few have signed it.
        """
        draft = self.draft
        if draft is None:
            raise RequestError(Code.NOT_FOUND, "no list of authorities waits for signatures; see: ca show")
        if draft == self.held:
            self._end()
            return
        if not any(self._has_key(one) for one in draft.issuers):
            raise RequestError(
                Code.CONFLICT, "ca.key holds no key of an authority in the draft; make it anew"
            )
        signed = self._signed(draft, signatures)
        following = 1 if self.held is None else self.held.version + 1
        if draft.version != following or not self._enough(draft, signed):
            raise RequestError(
                Code.CONFLICT,
                f"too few have signed the draft of version {draft.version}, by the list in force or by its "
                f"own, or it is not the next ({following}); ca show names who must sign",
            )
        self._publish(signed)

    def _enough(self, following: AuthorityList, signed: SignedList) -> bool:
        judges = (following,) if self.held is None else (self.held, following)
        return all(judge.is_signed(signed) for judge in judges)

    def _signed(self, following: AuthorityList, brought: Sequence[bytes] = ()) -> SignedList:
        """With one signature of each who is asked and has signed: clients take few."""
        said = following.to_json()
        words = (*(sign_list(key, said) for key in self.keys), *brought)
        signers = dict.fromkeys((*following.signers, *(self.held.signers if self.held else ())))
        found = (
            next((word for word in words if one.signed(word, AUTHORITIES_SIGNED + said)), None)
            for one in signers
        )
        return SignedList(list_json=said, signatures=tuple(filter(None, dict.fromkeys(found))))

    def _has_key(self, certificate: x509.Certificate) -> bool:
        return certificate.public_key() in [key.public_key() for key in self.keys]

    def _publish(self, signed: SignedList) -> None:
        write_chain(self._files.authorities, (*self.chain, signed))
        failpoint("authorities-listed")
        self._end()

    def _end(self) -> None:
        self.settle()
        self._files.draft.unlink(missing_ok=True)

    def settle(self) -> None:
        """Forget the keys of authorities that are trusted no more, then write down who is; may be repeated
        after a crash in between."""
        self._read()
        retired = self.retired
        if retired:
            self._write_keys([one for one in self.keys if one not in retired])
        self._write_issuers(self._issuing())

    @property
    def settled(self) -> bool:
        """Whether the other files say what the list in force says."""
        there = certificates(read(self._files.ca)) if is_there(self._files.ca) else []
        return not self.retired and set(there) == set(self.in_force.issuers)

    @property
    def retired(self) -> tuple[ec.EllipticCurvePrivateKey, ...]:
        """Keys of authorities that an earlier list named and this one does not."""
        named = [_publics(list_from_json(one.list_json)) for one in self.chain]
        return tuple(
            key
            for key in self.keys
            if any(key.public_key() in one for one in named) and key.public_key() not in named[-1]
        )

    def add_key(self) -> ec.EllipticCurvePrivateKey:
        """A new key, for a certificate to come; an earlier one that got none is dropped."""
        key = new_key()
        known = _publics(self.held) if self.held else []
        self._write_keys([*(one for one in self.keys if one.public_key() in known), key])
        return key

    def put_first(self, certificate: x509.Certificate) -> None:
        authority_of(certificate, self.keys)
        self._write_issuers(certificate)

    def _issuing(self) -> x509.Certificate:
        """Who issues now; after the first list the one whose key is here."""
        first = certificates(read(self._files.ca))[:1] if is_there(self._files.ca) else []
        named = [one for one in (*first, *self.in_force.issuers) if one in self.in_force.issuers]
        here = [one for one in named if self._has_key(one)]
        return authority_of((here or named)[0], self.keys).certificate

    def _write_issuers(self, first: x509.Certificate) -> None:
        others = (one for one in self.in_force.issuers if one != first)
        write_durably(self._files.ca, pem(first, *others))

    def _write_keys(self, keys: Sequence[ec.EllipticCurvePrivateKey]) -> None:
        write_secret(self._files.ca_key, b"".join(key_to_pem(key) for key in keys))
        self.keys = tuple(keys)


def list_of_draft(data: bytes) -> AuthorityList:
    """The list in a file of bytes to be signed.

    Raises:
        RequestError: it is no such file. PeerError: the list in it is not one.
    """
    if not data.startswith(AUTHORITIES_SIGNED):
        raise RequestError(Code.BAD_CONFIG, "this is no draft of a list of authorities; see: ca show")
    return list_from_json(data.removeprefix(AUTHORITIES_SIGNED))


def _publics(one: AuthorityList) -> list[object]:
    return [listed.certificate.public_key() for listed in one.authorities]
