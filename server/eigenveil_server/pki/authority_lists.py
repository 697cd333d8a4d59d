"""Changes of the list of authorities, and the status of a rotation [R19]. The keys on this machine sign the
next list. With enough signatures it is in force. Otherwise it waits in authorities.draft for signatures from
elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import grouped_digest
from eigenveil.protocol.authorities import (
    AUTHORITIES_SIGNED,
    AuthorityList,
    SignedAuthorityList,
    list_from_json,
)
from eigenveil_common.files import failpoint, path_exists, read, read_secret, write_durably, write_secret
from eigenveil_common.storage.database import Row
from eigenveil_server.config import Config, Files
from eigenveil_server.pki.authority import fingerprint, key_to_pem, keys_from_pem, new_key, pem, sign_list
from eigenveil_server.pki.authority_files import (
    Authorities,
    authority_of,
    certificates,
    read_chain,
    verify_chain,
    write_chain,
)
from eigenveil_server.process import unix_ms
from eigenveil_server.storage.database import existing_store

LIST_VALIDITY = timedelta(days=365)


class AuthorityListStore:
    """Lists and keys of one coordinator, for an operator's command; the coordinator may be serving. Raises
    RequestError: a file is damaged, or ca.key can be read by others."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._read_files()

    def _read_files(self) -> None:
        files = self._files
        self.chain = read_chain(files.authorities) if path_exists(files.authorities) else ()
        self.current_list = verify_chain(self.chain) if self.chain else None
        self.keys = tuple(keys_from_pem(read_secret(files.ca_key)))

    @property
    def in_force(self) -> AuthorityList:
        """Return the list in force. Raises RequestError: there is none yet."""
        return self.current_list or verify_chain(read_chain(self._files.authorities))

    @property
    def _next_version(self) -> int:
        return 1 if self.current_list is None else self.current_list.version + 1

    @property
    def draft(self) -> AuthorityList | None:
        return parse_draft(read(self._files.draft)) if path_exists(self._files.draft) else None

    def change(self, **changes: Any) -> bool:
        """Sign the next list, which has these changes, with the keys on this machine. Return True if it is in
        force, False if it waits. Raises RequestError: code `bad-argument`, a peer would refuse the list."""
        values: dict[str, Any] = {
            "version": self._next_version,
            "expires": _a_year_from_now(),
            "unknown": {},
        } | changes
        try:
            before = self.current_list
            proposed = AuthorityList(**values) if before is None else replace(before, **values)
        except PeerError as problem:
            raise RequestError(Code.BAD_ARGUMENT, str(problem)) from problem
        signed = self._sign(proposed)
        if self._has_enough_signatures(proposed, signed):
            self._publish(signed)
            return True
        write_durably(self._files.draft, AUTHORITIES_SIGNED + signed.list_json)
        return False

    def accept(self, signatures: Sequence[bytes]) -> None:
        """Put the draft in force, with these signatures and our own; after a crash, complete the change."""
        draft = self.draft
        if draft is None:
            raise RequestError(Code.NOT_FOUND, "no list of authorities waits for signatures; see: ca show")
        if draft == self.current_list:
            self._finish_draft()
            return
        if not any(self._has_key(one) for one in draft.issuers):
            raise RequestError(
                Code.CONFLICT, "ca.key has no key of the draft's authorities; make a new draft"
            )
        signed = self._sign(draft, signatures)
        if draft.version != self._next_version or not self._has_enough_signatures(draft, signed):
            raise RequestError(
                Code.CONFLICT,
                f"draft version {draft.version} has too few signatures, or is not the next version "
                f"({self._next_version}); ca show names the signers",
            )
        self._publish(signed)

    def _has_enough_signatures(self, proposed: AuthorityList, signed: SignedAuthorityList) -> bool:
        return all(one.is_signed(signed) for one in (self.current_list, proposed) if one is not None)

    def _sign(self, proposed: AuthorityList, further_signatures: Sequence[bytes] = ()) -> SignedAuthorityList:
        """Return the list with one signature of each signer who has signed; clients accept few."""
        list_json = proposed.to_json()
        signatures = (*(sign_list(key, list_json) for key in self.keys), *further_signatures)
        current = self.current_list.signers if self.current_list else ()
        found = dict[bytes, None]()
        for signer in dict.fromkeys((*proposed.signers, *current)):
            valid = (one for one in signatures if signer.signed(one, AUTHORITIES_SIGNED + list_json))
            found |= dict.fromkeys(islice(valid, 1))
        return SignedAuthorityList(list_json=list_json, signatures=tuple(found))

    def _has_key(self, certificate: x509.Certificate) -> bool:
        return certificate.public_key() in [key.public_key() for key in self.keys]

    def _publish(self, signed: SignedAuthorityList) -> None:
        write_chain(self._files.authorities, (*self.chain, signed))
        failpoint("authorities-listed")
        self._finish_draft()

    def _finish_draft(self) -> None:
        self.sync_files()
        self._files.draft.unlink(missing_ok=True)

    def sync_files(self) -> None:
        """Delete the keys of authorities that are no longer trusted, then write the issuers; repeatable."""
        self._read_files()
        if retired_keys := self.retired_keys:
            self._write_keys([one for one in self.keys if one not in retired_keys])
        first = certificates(read(self._files.ca))[:1] if path_exists(self._files.ca) else []
        named = [one for one in (*first, *self.in_force.issuers) if one in self.in_force.issuers]
        # After the first list, the issuer is the authority whose key is on this machine.
        self.set_issuer(next(filter(self._has_key, named), named[0]))

    @property
    def files_in_sync(self) -> bool:
        """True if the other files agree with the list in force."""
        there = certificates(read(self._files.ca)) if path_exists(self._files.ca) else []
        return not self.retired_keys and set(there) == set(self.in_force.issuers)

    @property
    def retired_keys(self) -> tuple[ec.EllipticCurvePrivateKey, ...]:
        """Return the keys of authorities that an earlier list names and the current one does not."""
        named = [_public_keys(list_from_json(one.list_json)) for one in self.chain]
        return tuple(
            key
            for key in self.keys
            if any(key.public_key() in one for one in named) and key.public_key() not in named[-1]
        )

    def add_key(self) -> ec.EllipticCurvePrivateKey:
        """Return a new key for a future certificate; an earlier key without a certificate is dropped."""
        key = new_key()
        known = _public_keys(self.current_list) if self.current_list else []
        self._write_keys([*(one for one in self.keys if one.public_key() in known), key])
        return key

    def set_issuer(self, certificate: x509.Certificate) -> None:
        authority_of(certificate, self.keys)
        others = (one for one in self.in_force.issuers if one != certificate)
        write_durably(self._files.ca, pem(certificate, *others))

    def _write_keys(self, keys: Sequence[ec.EllipticCurvePrivateKey]) -> None:
        write_secret(self._files.ca_key, b"".join(key_to_pem(key) for key in keys))
        self.keys = tuple(keys)


def _a_year_from_now() -> int:
    return int((datetime.now(UTC) + LIST_VALIDITY).timestamp())


def parse_draft(data: bytes) -> AuthorityList:
    """Return the list in a file of bytes to be signed. Raises RequestError: not such a file; PeerError: the
    list in it is invalid."""
    if not data.startswith(AUTHORITIES_SIGNED):
        raise RequestError(Code.BAD_CONFIG, "this file is not a draft of a list of authorities; see: ca show")
    return list_from_json(data.removeprefix(AUTHORITIES_SIGNED))


def _public_keys(one: AuthorityList) -> list[object]:
    return [listed.certificate.public_key() for listed in one.authorities]


LIVE_WITH_LISTS = (
    "SELECT c.role, c.name, c.issuer, g.authorities FROM certificates c "
    "LEFT JOIN greetings g ON (g.role, g.name) = (c.role, c.name) "
    "WHERE c.superseded = 0 AND c.expires_at > ? ORDER BY c.role, c.name"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationStatus:
    """Status of a rotation of authorities [R19]. Callers in `without_current_list` have not received the list
    in force. Those in `with_old_certificate` have a live certificate of another authority than the issuer.
    `draft` waits for signatures."""

    authorities: tuple[dict[str, Any], ...]
    without_current_list: tuple[str, ...]
    with_old_certificate: tuple[str, ...]
    current_list: AuthorityList
    draft: AuthorityList | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "authorities": list(self.authorities),
            "without_current_list": list(self.without_current_list),
            "with_old_certificate": list(self.with_old_certificate),
            "list": self.current_list.as_dict(),
            "draft": self.draft and self.draft.as_dict(),
        }

    def text(self) -> str:
        lines = []
        for one in self.authorities:
            signed = "self-signed" if one["issuer"] == one["subject"] else f"signed by {one['issuer']}"
            lines.append(
                f"{'issues ' if one['issues'] else 'trusted'}  until {one['ends'][:10]}  {one['subject']}\n"
                f"         {signed}\n         SHA-256  {grouped_digest(one['sha256'], 18)}"
            )
        lines.append(f"list of authorities: {self.current_list.text()}")
        if self.draft is not None:
            lines.append(f"waits for signatures, see ca sign and ca accept: {self.draft.text()}")
        lines.append(f"without the current list: {', '.join(self.without_current_list) or 'none'}")
        if len(self.authorities) > 1:
            lines.append(
                f"with a certificate of another authority: {', '.join(self.with_old_certificate) or 'none'}"
            )
        return "\n".join(lines)


def rotation_status(config: Config) -> RotationStatus:
    """Return the status that `ca show` prints."""
    authorities = Authorities(config.files)
    issuing = fingerprint(authorities.issuing.certificate)
    with closing(existing_store(config)) as store:
        live = store.reader.rows(LIVE_WITH_LISTS, (unix_ms(),))
    return RotationStatus(
        authorities=tuple(
            {
                "subject": one.subject.rfc4514_string(),
                "issuer": one.issuer.rfc4514_string(),
                "sha256": fingerprint(one),
                "ends": one.not_valid_after_utc.isoformat(timespec="seconds"),
                "issues": fingerprint(one) == issuing,
            }
            for one in authorities.trusted
        ),
        without_current_list=_caller_names(live, "authorities", authorities.current_list.digest),
        with_old_certificate=_caller_names(live, "issuer", issuing),
        current_list=authorities.current_list,
        draft=AuthorityListStore(config.files).draft,
    )


def _caller_names(live: Sequence[Row], column: str, current: object) -> tuple[str, ...]:
    """Return the callers with another value in a column than the current one."""
    return tuple(dict.fromkeys(f"{row['role']}/{row['name']}" for row in live if row[column] != current))
