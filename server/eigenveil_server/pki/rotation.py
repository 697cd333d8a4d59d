"""Rotation of the certificate authority, from the first step to the end of the old one [R19].

    rotate, or csr and import    both are trusted, the old one issues
    switch                       both are trusted, the new one issues; refused while a caller lacks the list
    retire                       the new one alone; refused while a certificate of the old one is in use

Each but `switch` makes a signed list, which waits for `accept` if the signers are elsewhere. The coordinator
may be serving: it reads the files again and notifies each caller that greets or renews."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509

from eigenveil.errors import Code, RequestError
from eigenveil.identity import CALLERS
from eigenveil.protocol.authorities import AuthorityList, ListedAuthority
from eigenveil.signatures import UNREADABLE
from eigenveil_common.concurrency import locked
from eigenveil_common.files import check_new, read, read_secret, write_durably
from eigenveil_server.config import Config
from eigenveil_server.pki.authority import Authority, fingerprint, sign_list, signing_key
from eigenveil_server.pki.authority_files import Authorities, authority_of, certificates
from eigenveil_server.pki.authority_lists import AuthorityListStore, rotation_status
from eigenveil_server.pki.keys import first_release_keys
from eigenveil_server.process import as_datetime, unix_ms
from eigenveil_server.storage.database import audit, existing_store

MIN_AUTHORITY_LIFE = timedelta(days=30)
MOST_AUTHORITIES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Signers:
    """Signers of the lists to come, as an operator names them; empty if they stay as they are."""

    certificates: tuple[x509.Certificate, ...] = ()
    threshold: int = 1

    @classmethod
    def read(cls, paths: Sequence[Path], threshold: int) -> Signers:
        return cls(certificates=tuple(certificates(read(path))[0] for path in paths), threshold=threshold)

    def of(self, authorities: Sequence[ListedAuthority]) -> tuple[ListedAuthority, ...]:
        """Return these authorities with these signers, and no other authority that only signs."""
        issuing = [
            replace(one, signs=one.certificate in self.certificates) for one in authorities if one.issues
        ]
        there = [one.certificate for one in issuing]
        others = [one for one in self.certificates if one not in there]
        return (*issuing, *(ListedAuthority(certificate=one, issues=False, signs=True) for one in others))


@contextmanager
def locked_lists(config: Config) -> Iterator[AuthorityListStore]:
    """Let one command at a time read, decide and write; two at once could drop a key or a list."""
    with locked(config.files.authorities.with_suffix(".lock")):
        yield AuthorityListStore(config.files)


def rotate(config: Config) -> bool:
    """Trust a new authority, its own root, from now on. Return False if the list waits for signatures."""
    with locked_lists(config) as lists:
        authorities = _authorities(config, rotating=False)
        made = Authority.create(config.federation, as_datetime(unix_ms()), lists.add_key())
        return _change(config, lists, _and_next(authorities, made.certificate))


def request(config: Config, out: Path) -> None:
    """Make the next authority's key, and write the request that an external authority signs."""
    with locked_lists(config) as lists:
        if lists.current_list is not None:
            _authorities(config, rotating=False)
        check_new(out)  # before the key is made
        write_durably(out, Authority.request(config.federation, lists.add_key()))


def import_authority(config: Config, path: Path, signers: Signers) -> bool:
    """Trust the authority whose certificate, made from `request`, is in `path`. Return False if the list
    waits for signatures. `signers` sign the lists after it, if any are named."""
    with locked_lists(config) as lists:
        certificate = certificates(read(path))[0]
        _check_authority(certificate)
        authority_of(certificate, lists.keys)
        if lists.current_list is None:
            if not signers.certificates:
                raise RequestError(
                    Code.BAD_ARGUMENT,
                    "this is the first authority; name the root that signs it with --signer FILE",
                )
            return _change(config, lists, (_entry(certificate, signs=False),), signers)
        if certificate in lists.current_list.issuers:
            raise RequestError(Code.CONFLICT, f"the authority in {path} is trusted already")
        return _change(config, lists, _and_next(_authorities(config, rotating=False), certificate), signers)


def extend(config: Config, signers: Signers) -> bool:
    """Make a new list of the same authorities, for another year. Return False if it waits for signatures.
    Raises RequestError: there is no list, or a file is damaged."""
    with locked_lists(config) as lists:
        return _change(config, lists, lists.in_force.authorities, signers)


def accept(config: Config, paths: Sequence[Path]) -> None:
    """Put the waiting list in force, with the signatures in these files."""
    with locked_lists(config) as lists:
        before, draft = lists.current_list, lists.draft
        if before is not None and draft is not None and draft.release_key != before.release_key:
            raise RequestError(
                Code.CONFLICT,
                "this list changes the release key; stop the coordinator, then bring its signatures with: "
                "release-key switch --signature FILE",
            )
        lists.accept([read(path) for path in paths])
        _audit_trusted(config, before, lists.in_force)


def sign_draft(draft: AuthorityList, key: Path, out: Path) -> None:
    """Sign a waiting list with a key on this machine, into the new file `out`."""
    secret = signing_key(read_secret(key))
    check_new(out)
    write_durably(out, sign_list(secret, draft.to_json()))


def switch(config: Config, *, anyway: bool) -> None:
    """Issue with the new authority from now on."""
    with locked_lists(config) as lists:
        successor = _authorities(config, rotating=True).trusted[1]
        behind = ", ".join(rotation_status(config).without_current_list)
        if behind and not anyway:
            raise RequestError(
                Code.CONFLICT,
                f"these do not have the new list and could not connect any more: {behind}; wait until they "
                "connect, deny them, or add --anyway",
            )
        lists.set_issuer(successor)
        _audit(config, "authority-issues", fingerprint(successor))


def retire(config: Config, *, anyway: bool) -> bool:
    """Stop trusting the old authority. Return False if the list without it waits for signatures. Repeated
    after a crash, it completes the interrupted change. The old one's certificates are invalidated first.
    While two authorities are trusted, or the old one's key is on this machine, work is left."""
    with locked_lists(config) as lists:
        if not lists.files_in_sync:
            lists.sync_files()
            if len(lists.in_force.issuers) < MOST_AUTHORITIES:
                return True
        authorities = _authorities(config, rotating=True)
        behind = ", ".join(rotation_status(config).with_old_certificate)
        if behind and not anyway:
            raise RequestError(
                Code.CONFLICT,
                f"these still use a certificate of the old authority: {behind}; they renew within "
                f"{max(map(config.days, CALLERS)):g} days: wait, deny them, or add --anyway and make new "
                "join files. Before the switch, run: eigenveil-coordinator ca switch --config FILE",
            )
        issuing = authorities.issuing.certificate
        with closing(existing_store(config)) as store, store.writer.transaction() as change:
            print = fingerprint(issuing)
            change.execute("UPDATE certificates SET superseded = 1 WHERE issuer != ?", (print,))
            audit(change, unix_ms(), "authority-retired", "ca", print)
        there = authorities.current_list.authorities
        left = tuple(one for one in there if not one.issues or one.certificate == issuing)
        return _change(config, lists, left)


def _authorities(config: Config, *, rotating: bool) -> Authorities:
    """Return the authorities, if a rotation is under way or not, as `rotating` states."""
    authorities = Authorities(config.files)
    if (len(authorities.trusted) >= MOST_AUTHORITIES) is rotating:
        return authorities
    if rotating:
        raise RequestError(
            Code.CONFLICT, "only one authority is trusted; make or import the next one: ca rotate, ca csr"
        )
    raise RequestError(Code.CONFLICT, "a rotation is under way; complete it first: ca switch, ca retire")


def _check_authority(certificate: x509.Certificate) -> None:
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
        issues = basic.ca and usage.key_cert_sign
    except UNREADABLE:
        issues = False
    if not issues:
        raise RequestError(
            Code.BAD_CONFIG,
            "the certificate is not an authority's; it needs basicConstraints CA:TRUE and keyCertSign",
        )
    if certificate.not_valid_after_utc - datetime.now(UTC) < MIN_AUTHORITY_LIFE:
        raise RequestError(
            Code.BAD_CONFIG, f"the authority expires within {MIN_AUTHORITY_LIFE.days} days; use another"
        )


def _entry(certificate: x509.Certificate, signs: bool) -> ListedAuthority:
    return ListedAuthority(certificate=certificate, issues=True, signs=signs)


def _and_next(authorities: Authorities, certificate: x509.Certificate) -> tuple[ListedAuthority, ...]:
    """Return the authorities and the next one, which signs lists if the issuing one does."""
    there, issuing = authorities.current_list.authorities, authorities.issuing.certificate
    signs = next(one.signs for one in there if one.certificate == issuing)
    return (*there, _entry(certificate, signs))


def _change(
    config: Config,
    lists: AuthorityListStore,
    authorities: Sequence[ListedAuthority],
    signers: Signers = Signers(),
) -> bool:
    """Make the next list; True if it is in force. Named signers replace those of the list before."""
    before = lists.current_list
    changes: dict[str, Any] = {"authorities": tuple(authorities)}
    if before is None:
        keys = first_release_keys(config.files)
        changes |= {"federation": config.federation, "threshold": 1, "release_keys": keys}
    if signers.certificates:
        changes |= {"authorities": signers.of(authorities), "threshold": signers.threshold}
    if not lists.change(**changes):
        return False
    _audit_trusted(config, before, lists.in_force)
    return True


def _audit_trusted(config: Config, before: AuthorityList | None, after: AuthorityList) -> None:
    for one in after.fingerprints:
        if before is None or one not in before.fingerprints:
            _audit(config, "authority-trusted", one)


def _audit(config: Config, kind: str, print: str) -> None:
    with closing(existing_store(config)) as store, store.writer.transaction() as change:
        audit(change, unix_ms(), kind, "ca", print)


def announce_addresses(config: Config, addresses: Sequence[str], *, anyway: bool) -> bool:
    """Announce to all clients where the coordinator is reached from now on, the first address first; without
    any: where join files say. Return False if the list waits for signatures. Raises RequestError: code
    `conflict`, none of the present addresses is among them, or clients do not know the present ones yet
    (unless `anyway`)."""
    with locked_lists(config) as lists:
        present = lists.in_force.addresses
        if present and not anyway:
            _check_reachable(config, present, addresses)
        made = lists.change(addresses=tuple(addresses))
        if made:
            _audit(config, "addresses-announced", ", ".join(addresses) or "of the join files")
        return made


def _check_reachable(config: Config, present: Sequence[str], addresses: Sequence[str]) -> None:
    """Check that every client can find the coordinator by the new addresses, or will learn them."""
    if addresses and not set(present) & set(addresses):
        raise RequestError(
            Code.CONFLICT,
            f"none of the present addresses ({', '.join(present)}) is among the new ones; name one of them "
            "too, or add --anyway",
        )
    if behind := ", ".join(rotation_status(config).without_current_list):
        raise RequestError(
            Code.CONFLICT,
            f"these do not have the present list of addresses: {behind}; wait until they connect, or add "
            "--anyway and give them new join files",
        )
