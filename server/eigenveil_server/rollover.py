"""A new certificate authority, from the first word of it to the end of the old one [R19].

    rotate, or csr and import    both are trusted, the old one issues
    switch                       both are trusted, the new one issues; refused while somebody has not heard
    retire                       the new one alone; refused while a certificate of the old one is in use

The coordinator may serve meanwhile. It reads the files again and tells whoever greets or renews.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509

from eigenveil.errors import Code, RequestError
from eigenveil.identity import UNREADABLE, spoken
from eigenveil_common.files import check_output, is_there, read, write_durably
from eigenveil_server.authorities import Authorities, certificates
from eigenveil_server.clock import as_datetime, unix_ms
from eigenveil_server.config import Config
from eigenveil_server.database import Store, audit
from eigenveil_server.pki import Authority, fingerprint
from eigenveil_server.setup import existing_store

SHORTEST_LIFE = timedelta(days=30)
MOST_AUTHORITIES = 2
LIVE = (
    "SELECT c.role, c.name, c.issuer, g.authorities FROM certificates c "
    "LEFT JOIN greetings g ON (g.role, g.name) = (c.role, c.name) "
    "WHERE c.superseded = 0 AND c.expires_at > ? ORDER BY c.role, c.name"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a change of authority stands. `unheard` do not trust all of them yet; `behind` hold a live
    certificate that another than the issuing one signed."""

    authorities: tuple[dict[str, Any], ...]
    unheard: tuple[str, ...]
    behind: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "authorities": list(self.authorities),
            "unheard": list(self.unheard),
            "behind": list(self.behind),
        }

    def text(self) -> str:
        """The same for a person."""
        lines = [
            f"{'issues ' if one['issues'] else 'trusted'}  until {one['ends'][:10]}  {one['subject']}\n"
            f"         {_root(one)}\n         SHA-256  {spoken(one['sha256'], 18)}"
            for one in self.authorities
        ]
        if len(self.authorities) > 1:
            lines.append(f"have not heard of all these: {', '.join(self.unheard) or 'nobody'}")
            lines.append(f"certificates not of the one that issues: {', '.join(self.behind) or 'none'}")
        return "\n".join(lines)


def standing(config: Config) -> Standing:
    """What `ca show` says.

    Raises:
        RequestError: there is no federation, or a file is damaged.
    """
    authorities = Authorities(config.files)
    store = existing_store(config)
    try:
        return _standing(authorities, store)
    finally:
        store.close()


def _standing(authorities: Authorities, store: Store) -> Standing:
    issuing = fingerprint(authorities.issuing.certificate)
    live = store.reader.rows(LIVE, (unix_ms(),))
    return Standing(
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
        unheard=_names(row for row in live if row["authorities"] != authorities.digest),
        behind=_names(row for row in live if row["issuer"] != issuing),
    )


def _root(one: dict[str, Any]) -> str:
    return "its own root" if one["issuer"] == one["subject"] else f"signed by {one['issuer']}"


def _names(rows: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{row['role']}/{row['name']}" for row in rows))


def rotate(config: Config) -> None:
    """Make the next authority, its own root, and trust it from now on.

    Raises:
        RequestError: a change is under way already.
    """
    authorities = _settled(config)
    made = Authority.create(config.federation, as_datetime(unix_ms()), authorities.add_key())
    authorities.add(made.certificate)
    _note(config, "authority-trusted", made.certificate)


def request(config: Config, out: Path) -> None:
    """Make the next authority's key here, and write the request that an authority elsewhere signs.

    Raises:
        RequestError: a change is under way already, or `out` exists.
    """
    authorities = _settled(config)
    if is_there(out):
        raise RequestError(Code.CONFLICT, f"{out} exists already; name another file")
    check_output(out)  # before the key is made
    write_durably(out, Authority.request(config.federation, authorities.add_key()))


def take(config: Config, path: Path) -> None:
    """Trust the authority whose certificate, made from `request`, is in `path`.

    Raises:
        RequestError: a change is under way, or the certificate is not one of an authority with our key.
    """
    authorities = _settled(config)
    certificate = certificates(read(path))[0]
    _check_authority(certificate)
    if certificate in authorities.trusted:
        raise RequestError(Code.CONFLICT, f"the authority in {path} is trusted already")
    authorities.add(certificate)
    _note(config, "authority-trusted", certificate)


def switch(config: Config, *, anyway: bool) -> None:
    """Issue with the new one from now on.

    Raises:
        RequestError: there is no new one; or somebody has not heard of it, unless `anyway`.
    """
    authorities = _both(config)
    unheard = standing(config).unheard
    if unheard and not anyway:
        raise RequestError(
            Code.CONFLICT,
            f"these have not heard of the new authority and would not find the coordinator: "
            f"{', '.join(unheard)}; wait until they have greeted, deny them, or add --anyway",
        )
    following = authorities.trusted[1]
    authorities.put_first(following)
    _note(config, "authority-issues", following)


def retire(config: Config, *, anyway: bool) -> None:
    """Trust the old one no more. Repeated after a crash, it goes on where that one ended: the old one's
    certificates are shut out first, and while two authorities are trusted there is something left to do.

    Raises:
        RequestError: there is no old one; or a certificate of it is in use, unless `anyway`.
    """
    authorities = _both(config)
    behind = standing(config).behind
    if behind and not anyway:
        raise RequestError(
            Code.CONFLICT,
            f"these still use a certificate of the old authority: {', '.join(behind)}; they renew within "
            f"{config.certificate_days:g} days of their last; wait, deny them, or add --anyway. If you have "
            "not switched yet: eigenveil-coordinator ca switch --config FILE",
        )
    store = existing_store(config)
    try:
        with store.writer.transaction() as change:
            kept = fingerprint(authorities.issuing.certificate)
            change.execute("UPDATE certificates SET superseded = 1 WHERE issuer != ?", (kept,))
            audit(change, unix_ms(), "authority-retired", "ca", kept)
    finally:
        store.close()
    authorities.keep_first()


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


def _note(config: Config, kind: str, certificate: x509.Certificate) -> None:
    store = existing_store(config)
    try:
        with store.writer.transaction() as change:
            audit(change, unix_ms(), kind, "ca", fingerprint(certificate))
    finally:
        store.close()
