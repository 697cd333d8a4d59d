"""A new certificate authority, from the first word of it to the end of the old one [R19].

    rotate, or csr and import    both are trusted, the old one issues
    switch                       both are trusted, the new one issues; refused while somebody has not heard
    retire                       the new one alone; refused while a certificate of the old one is in use

Each but `switch` makes a signed list, which waits for `accept` if those who sign are elsewhere. The
coordinator may serve meanwhile. It reads the files again and tells whoever greets or renews.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from eigenveil.certificates import UNREADABLE
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import CALLERS
from eigenveil.protocol.authorities import AuthorityList, ListedAuthority
from eigenveil_common.files import check_new, read, read_secret, write_durably
from eigenveil_common.locks import locked
from eigenveil_server.clock import as_datetime, unix_ms
from eigenveil_server.config import Config
from eigenveil_server.pki.authority import Authority, fingerprint, sign_list, signing_key
from eigenveil_server.pki.authority_files import Authorities, authority_of, certificates
from eigenveil_server.pki.keys import release_public
from eigenveil_server.pki.lists import Lists
from eigenveil_server.pki.rollover_status import standing
from eigenveil_server.storage.database import audit, existing_store

SHORTEST_LIFE = timedelta(days=30)
MOST_AUTHORITIES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Signers:
    """Who shall sign the lists to come, as an operator names them; nobody, if that stays as it is."""

    certificates: tuple[x509.Certificate, ...] = ()
    threshold: int = 1

    def of(self, authorities: Sequence[ListedAuthority]) -> tuple[ListedAuthority, ...]:
        """These authorities with these who sign, and nobody else who only signs."""
        issuing = [
            replace(one, signs=one.certificate in self.certificates) for one in authorities if one.issues
        ]
        there = [one.certificate for one in issuing]
        others = [one for one in self.certificates if one not in there]
        return (*issuing, *(ListedAuthority(certificate=one, issues=False, signs=True) for one in others))


NOBODY = Signers()


def _in_turn(config: Config) -> AbstractContextManager[None]:
    """One command at a time reads, decides and writes: two at once could drop a key or a list."""
    return locked(config.files.authorities.with_suffix(".lock"))


def rotate(config: Config) -> bool:
    """Make the next authority, its own root, and trust it from now on; False if the list that names it waits
    for signatures.

    Raises:
        RequestError: a change is under way already.
    """
    with _in_turn(config):
        authorities = _settled(config)
        lists = Lists(config.files)
        made = Authority.create(config.federation, as_datetime(unix_ms()), lists.add_key())
        signs = _issuing_entry(authorities).signs
        return _change(config, lists, (*authorities.held.authorities, _entry(made.certificate, signs)))


def request(config: Config, out: Path) -> None:
    """Make the next authority's key here, and write the request that an authority elsewhere signs.

    Raises:
        RequestError: a change is under way already, or `out` exists.
    """
    with _in_turn(config):
        lists = Lists(config.files)
        if lists.held is not None:
            _settled(config)
        check_new(out)  # before the key is made
        write_durably(out, Authority.request(config.federation, lists.add_key()))


def take(config: Config, path: Path, signers: Signers) -> bool:
    """Trust the authority whose certificate, made from `request`, is in `path`; False if the list that names
    it waits for signatures. `signers` sign the lists after it, if any are named.

    Raises:
        RequestError: a change is under way, the certificate is not one of an authority with our key, or it
            is the first and nobody is named who signs.
    """
    with _in_turn(config):
        lists = Lists(config.files)
        certificate = certificates(read(path))[0]
        _check_authority(certificate)
        authority_of(certificate, lists.keys)
        if lists.held is None:
            if not signers.certificates:
                raise RequestError(
                    Code.BAD_ARGUMENT,
                    "this is the first authority: name the root that signs with --signer FILE",
                )
            return _change(config, lists, (_entry(certificate, signs=False),), signers)
        if certificate in lists.held.issuers:
            raise RequestError(Code.CONFLICT, f"the authority in {path} is trusted already")
        signs = _issuing_entry(_settled(config)).signs
        return _change(config, lists, (*lists.held.authorities, _entry(certificate, signs)), signers)


def extend(config: Config, signers: Signers) -> bool:
    """The same authorities in a new list, for another year; False if it waits for signatures. In a folder of
    an earlier version the first list, of the authorities in ca.pem.

    Raises:
        RequestError: there are none, or a file is damaged.
    """
    with _in_turn(config):
        lists = Lists(config.files)
        if lists.held is not None:
            return _change(config, lists, lists.held.authorities, signers)
        there = tuple(_entry(one, signs=True) for one in certificates(read(config.files.ca)))
        return _change(config, lists, there, signers)


def accept(config: Config, paths: Sequence[Path]) -> None:
    """Put the list that waits in force, by the signatures in these files.

    Raises:
        RequestError: none waits, or too few have signed it.
    """
    with _in_turn(config):
        lists = Lists(config.files)
        before = lists.held
        lists.accept([read(path) for path in paths])
        _note(config, before, lists.in_force)


def sign_draft(draft: AuthorityList, key: Path, out: Path) -> None:
    """Sign a list that waits with a key that is kept here, into the new file `out`.

    Raises:
        RequestError: the key cannot sign, or `out` is there already.
    """
    secret = signing_key(read_secret(key))
    check_new(out)
    write_durably(out, sign_list(secret, draft.to_json()))


def switch(config: Config, *, anyway: bool) -> None:
    """Issue with the new one from now on.

    Raises:
        RequestError: there is no new one; or somebody has not heard of it, unless `anyway`.
    """
    with _in_turn(config):
        authorities = _both(config)
        unheard = standing(config).unheard
        if unheard and not anyway:
            raise RequestError(
                Code.CONFLICT,
                f"these have not heard of the new authority and would not find the coordinator: "
                f"{', '.join(unheard)}; wait until they have greeted, deny them, or add --anyway",
            )
        following = authorities.trusted[1]
        Lists(config.files).put_first(following)
        _audit(config, "authority-issues", fingerprint(following))


def retire(config: Config, *, anyway: bool) -> bool:
    """Trust the old one no more; False if the list without it waits for signatures. Repeated after a crash,
    it goes on where that one ended: the old one's certificates are shut out first, and while two authorities
    are trusted, or the old one's key is here, there is something left to do.

    Raises:
        RequestError: there is no old one; or a certificate of it is in use, unless `anyway`.
    """
    with _in_turn(config):
        lists = Lists(config.files)
        if not lists.settled:
            lists.settle()
            if len(lists.in_force.issuers) < MOST_AUTHORITIES:
                return True
        authorities = _both(config)
        behind = standing(config).behind
        if behind and not anyway:
            raise RequestError(
                Code.CONFLICT,
                f"these still use a certificate of the old authority: {', '.join(behind)}; they renew within "
                f"{max(map(config.days, CALLERS)):g} days of their last; wait, deny them, or add --anyway "
                "and make them new join files. If you have not switched yet: eigenveil-coordinator ca switch "
                "--config FILE",
            )
        issuing = authorities.issuing.certificate
        with closing(existing_store(config)) as store, store.writer.transaction() as change:
            kept = fingerprint(issuing)
            change.execute("UPDATE certificates SET superseded = 1 WHERE issuer != ?", (kept,))
            audit(change, unix_ms(), "authority-retired", "ca", kept)
        held = authorities.held.authorities
        left = tuple(one for one in held if not one.issues or one.certificate == issuing)
        return _change(config, lists, left)


def _settled(config: Config) -> Authorities:
    authorities = Authorities(config.files)
    if len(authorities.trusted) >= MOST_AUTHORITIES:
        raise RequestError(
            Code.CONFLICT, "two authorities are trusted already; end that change first: ca switch, ca retire"
        )
    return authorities


def _both(config: Config) -> Authorities:
    authorities = Authorities(config.files)
    if len(authorities.trusted) < MOST_AUTHORITIES:
        raise RequestError(
            Code.CONFLICT, "only one authority is trusted; make or import the next one: ca rotate, ca csr"
        )
    return authorities


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
    if certificate.not_valid_after_utc - datetime.now(UTC) < SHORTEST_LIFE:
        raise RequestError(Code.BAD_CONFIG, f"the authority would end within {SHORTEST_LIFE.days} days")


def _entry(certificate: x509.Certificate, signs: bool) -> ListedAuthority:
    return ListedAuthority(certificate=certificate, issues=True, signs=signs)


def _issuing_entry(authorities: Authorities) -> ListedAuthority:
    first = authorities.issuing.certificate
    return next(one for one in authorities.held.authorities if one.certificate == first)


def _change(
    config: Config, lists: Lists, authorities: Sequence[ListedAuthority], signers: Signers = NOBODY
) -> bool:
    """Make the next list; whether it is in force. Named signers replace those of the list before."""
    before = lists.held
    threshold = 1 if before is None else before.threshold
    key = release_public(config.files) if before is None else before.release_key
    if signers.certificates:
        authorities, threshold = signers.of(authorities), signers.threshold
    try:
        in_force = lists.change(authorities, threshold, federation=config.federation, release_key=key)
    except PeerError as problem:  # what a peer must not send, an operator must not ask for
        raise RequestError(Code.BAD_ARGUMENT, str(problem)) from problem
    if in_force:
        _note(config, before, lists.in_force)
    return in_force


def _note(config: Config, before: AuthorityList | None, after: AuthorityList) -> None:
    for one in after.prints:
        if before is None or one not in before.prints:
            _audit(config, "authority-trusted", one)


def _audit(config: Config, kind: str, print: str) -> None:
    with closing(existing_store(config)) as store, store.writer.transaction() as change:
        audit(change, unix_ms(), kind, "ca", print)
