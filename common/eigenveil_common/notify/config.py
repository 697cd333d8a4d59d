"""Table [notify] of a daemon's configuration: recipients and channels of notices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from eigenveil.study.study import NAME
from eigenveil_common.config import KeyRule, between, check_rules, ensure, key, table

MOST_ADDRESS_CHARACTERS = 254  # characters of an address: RFC 5321
# Without the quoted forms, comments and lists of the RFC, so no line break or second recipient can get in.
ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,252})")
URL = re.compile(r"https://[!-~]{1,2000}")


class Tls(Enum):
    """TLS mode of the mail connection (`mail_tls`): from the start, by STARTTLS, or none."""

    TLS = "tls"
    STARTTLS = "starttls"
    NONE = "none"


def is_address(value: object) -> bool:
    short = isinstance(value, str) and len(value) <= MOST_ADDRESS_CHARACTERS
    return short and ADDRESS.fullmatch(str(value)) is not None


def _is_webhook(value: str) -> bool:
    if not URL.fullmatch(value):
        return False
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return False
    return bool(parts.hostname) and parts.username is None and not parts.fragment


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Keys of [notify], explained in deploy/config/*.example.toml. Without keys no notice is sent."""

    to: tuple[str, ...] = key(
        (), KeyRule(lambda value: all(map(is_address, value)), "{key} must be mail addresses")
    )
    mail_host: str = key(
        "", KeyRule(lambda value: not value or HOST.fullmatch(value), "{key} must be a host name")
    )
    mail_port: int = key(587, between(1, 65535))
    mail_tls: Tls | None = None
    mail_from: str = key(
        "", KeyRule(lambda value: not value or is_address(value), "{key} must be a mail address")
    )
    mail_user: str = ""
    mail_password: Path | None = None
    webhook: str = key(
        "",
        # The value may be a secret, so the message does not quote it.
        KeyRule(lambda value: not value or _is_webhook(value), "{key} must be an https:// URL"),
    )
    webhook_header: Path | None = None
    authorities: Path | None = None

    def __post_init__(self) -> None:
        check_rules(self)
        mails = bool(self.mail_host)
        ensure(mails or not self.to, "to is set, but mail_host is not; name the mail server")
        ensure(not mails or self.mail_tls, 'mail_tls must be set: "tls", "starttls" or "none"')
        ensure(not mails or self.mail_from, "mail_from must be set: the sender's mail address")
        ensure(
            bool(self.mail_user) == (self.mail_password is not None),
            "set both mail_user and mail_password, or none of them",
        )
        ensure(
            self.mail_password is None or self.mail_tls is not Tls.NONE,
            'mail_tls = "none" would send the password unencrypted; remove mail_user or use TLS',
        )
        ensure(bool(self.webhook) or self.webhook_header is None, "webhook_header is set, but webhook is not")

    @property
    def secrets(self) -> list[Path]:
        """Secret files, readable by their owner only."""
        return [path for path in (self.mail_password, self.webhook_header) if path is not None]


def addresses(data: Any) -> tuple[tuple[str, str], ...]:
    """Return the table [notify.analysts]: names in the analysts' certificates, and their addresses."""
    ensure(isinstance(data, dict), "analysts must be a table [notify.analysts]")
    for name, address in data.items():
        ensure(NAME.fullmatch(name), f"analysts: {name!r} is not a valid analyst name")
        ensure(is_address(address), f"analysts: {name} has no valid mail address")
    return tuple(data.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyAnalysts:
    """Table [notify] of a coordinator: `to` gets every notice, an analyst those of their own studies."""

    channels: Notify = Notify()
    analysts: tuple[tuple[str, str], ...] = table(addresses, ())

    def __post_init__(self) -> None:
        ensure(
            not self.analysts or self.channels.mail_host, "analysts have addresses, but mail_host is not set"
        )
