"""Where a change of authorities stands: who is trusted, who signs, and who has not followed yet [R19]."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from eigenveil.identity import spoken
from eigenveil.protocol.authorities import AuthorityList
from eigenveil_server.clock import unix_ms
from eigenveil_server.config import Config
from eigenveil_server.pki.authority import fingerprint
from eigenveil_server.pki.authority_files import Authorities
from eigenveil_server.pki.lists import Lists
from eigenveil_server.storage.database import existing_store

LIVE = (
    "SELECT c.role, c.name, c.issuer, g.authorities FROM certificates c "
    "LEFT JOIN greetings g ON (g.role, g.name) = (c.role, c.name) "
    "WHERE c.superseded = 0 AND c.expires_at > ? ORDER BY c.role, c.name"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a change of authority stands. `unheard` do not hold the list in force yet; `behind` have a live
    certificate that another than the issuing one signed. `draft` waits for signatures."""

    authorities: tuple[dict[str, Any], ...]
    unheard: tuple[str, ...]
    behind: tuple[str, ...]
    held: AuthorityList
    draft: AuthorityList | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "authorities": list(self.authorities),
            "unheard": list(self.unheard),
            "behind": list(self.behind),
            "list": self.held.as_dict(),
            "draft": self.draft and self.draft.as_dict(),
        }

    def text(self) -> str:
        lines = [
            f"{'issues ' if one['issues'] else 'trusted'}  until {one['ends'][:10]}  {one['subject']}\n"
            f"         {_root(one)}\n         SHA-256  {spoken(one['sha256'], 18)}"
            for one in self.authorities
        ]
        lines.append(f"list of authorities: {self.held.text()}")
        if self.draft is not None:
            lines.append(f"waits for signatures, see ca sign and ca accept: {self.draft.text()}")
        if len(self.authorities) > 1 or self.unheard:
            lines.append(f"have not heard of all this: {', '.join(self.unheard) or 'nobody'}")
            lines.append(f"certificates not of the one that issues: {', '.join(self.behind) or 'none'}")
        return "\n".join(lines)


def standing(config: Config) -> Standing:
    """What `ca show` says.

    Raises:
        RequestError: there is no federation, or a file is damaged.
    """
    authorities = Authorities(config.files)
    issuing = fingerprint(authorities.issuing.certificate)
    with closing(existing_store(config)) as store:
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
        unheard=_names(row for row in live if row["authorities"] != authorities.held.digest),
        behind=_names(row for row in live if row["issuer"] != issuing),
        held=authorities.held,
        draft=Lists(config.files).draft,
    )


def _root(one: dict[str, Any]) -> str:
    return "its own root" if one["issuer"] == one["subject"] else f"signed by {one['issuer']}"


def _names(rows: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{row['role']}/{row['name']}" for row in rows))
