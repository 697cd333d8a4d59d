"""The table [notify] of a daemon's configuration: who is told, and by which way."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from eigenveil.study.study import NAME
from eigenveil_common.config import Rule, check_rules, key, need, table

LONGEST = 254  # of an address: RFC 5321
# Without the quoted forms, comments and lists of the RFC: no way in for a line break or a second recipient.
ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,252})")
URL = re.compile(r"https://[!-~]{1,2000}")


class Tls(Enum):
    """`mail_tls`: the connection begins in TLS, changes over to it before anything is said, or never does."""

    TLS = "tls"
    STARTTLS = "starttls"
    NONE = "none"


def is_address(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST and ADDRESS.fullmatch(value) is not None


def _is_webhook(value: str) -> bool:
    if not URL.fullmatch(value):
        return False
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 - raises for one that is no number
    except ValueError:
        return False
    return bool(parts.hostname) and parts.username is None and not parts.fragment


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """The keys of [notify]; deploy/config/*.example.toml explain them. Nothing stated: nobody is told.

    Raises:
        RequestError: code `bad-config`, naming the key.
    """

    to: tuple[str, ...] = key(
        (), Rule(holds=lambda value: all(map(is_address, value)), words="{key}: addresses")
    )
    mail_host: str = key(
        "", Rule(holds=lambda value: not value or HOST.fullmatch(value), words="{key}: a host name")
    )
    mail_port: int = key(
        587, Rule(holds=lambda value: 0 < value < 65536, words="{key} must lie between 1 and 65535")
    )
    mail_tls: Tls | None = None
    mail_from: str = key(
        "", Rule(holds=lambda value: not value or is_address(value), words="{key}: an address")
    )
    mail_user: str = ""
    mail_password: Path | None = None
    webhook: str = key(
        "",
        # Its value may be a secret: it is not quoted.
        Rule(holds=lambda value: not value or _is_webhook(value), words="{key} must be an https:// URL"),
    )
    webhook_header: Path | None = None
    authorities: Path | None = None

    def __post_init__(self) -> None:
        check_rules(self)
        mails = bool(self.mail_host)
        need(mails or not self.to, "to is set, but mail_host is not; name the mail server")
        need(not mails or self.mail_tls, 'mail_tls must be stated: "tls", "starttls" or "none"')
        need(not mails or self.mail_from, "mail_from must be stated: whom the mails come from")
        need(
            bool(self.mail_user) == (self.mail_password is not None),
            "mail_user and mail_password: both or none",
        )
        need(
            self.mail_password is None or self.mail_tls is not Tls.NONE,
            'mail_tls = "none" would show the password to the network; leave out mail_user or use TLS',
        )
        need(bool(self.webhook) or self.webhook_header is None, "webhook_header is set, but webhook is not")

    @property
    def secrets(self) -> list[Path]:
        """Files that only their owner may read."""
        return [path for path in (self.mail_password, self.webhook_header) if path is not None]


def addresses(data: Any) -> tuple[tuple[str, str], ...]:
    """[notify.analysts]: the name in an analyst's certificate, and the address.

    Raises:
        RequestError: code `bad-config`.
    """
    need(isinstance(data, dict), "analysts must be a table [notify.analysts]")
    for name, address in data.items():
        need(NAME.fullmatch(name), f"analysts: {name!r} is no analyst's name")
        need(is_address(address), f"analysts: {name} has no address")
    return tuple(data.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyAnalysts:
    """The table [notify] of a coordinator: `to` hear of every end, an analyst of their own studies' alone."""

    way: Notify = Notify()
    analysts: tuple[tuple[str, str], ...] = table(addresses, ())

    def __post_init__(self) -> None:
        need(not self.analysts or self.way.mail_host, "analysts have addresses, but mail_host is not set")
