"""Configuration of a coordinator (coordinator.toml), and the paths of its files."""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.accounting.budget import NoiseRule, PrivacyBudget, budget_for
from eigenveil.identity import Role
from eigenveil.study.study import NAME
from eigenveil_common.config import (
    ABOVE_ZERO,
    AT_LEAST_ONE,
    BELOW_ONE,
    INSIDE_ONE,
    KeyRule,
    between,
    check_rules,
    ensure,
    key,
    section,
    table,
)
from eigenveil_common.log import Format
from eigenveil_common.notify.config import NotifyAnalysts

CONFIG_NAME = "coordinator.toml"
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,252})")
HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]{0,63})?")
PERSON = re.compile(r"(analyst|operator)/[a-z0-9-]{1,63}")
BAD_HOST = "{key} = {value!r} is neither a host name nor an IP address"
DATABASE = KeyRule(
    lambda value: not value or value.startswith(("postgresql://", "postgres://")),
    "{key} must be a postgresql:// URL; leave it out for state.db in the state folder",
)
FROM_ZERO = KeyRule(lambda value: value >= 0, "{key} must be 0, a positive number, or inf")
HOURS, MINUTES, PORT = between(0, 24 * 366), between(0, 7 * 24 * 60), between(0, 65535)
LISTENER = KeyRule(lambda value: not value or bool(split_listen(value)), "")  # split_listen raises


def at_most(most: int) -> KeyRule:
    """Return the rule: above 0, and at most `most`."""
    return KeyRule(lambda x: 0 < x <= most, f"{{key}} must lie above 0 and be at most {most}")


def split_listen(address: str) -> tuple[str, int]:
    """Return host and port of an address to listen on. Raises RequestError: not of the form host:port."""
    host, _, port = address.rpartition(":")
    good = port.isascii() and port.isdigit() and int(port) < 65536 and HOST.fullmatch(host)
    ensure(bool(good), f"{address!r} is not an address to listen on; write host:port, such as 127.0.0.1:9464")
    return host, int(port)


def _people(data: Any) -> tuple[tuple[str, str], ...]:
    """Return the identity of each name from a proxy: `"alice@example.org" = "analyst/alice"`."""
    ensure(isinstance(data, dict), "people must be a table [console.people]")
    for name, who in data.items():
        ensure(
            isinstance(who, str) and PERSON.fullmatch(who),
            f"people: {name!r} must be analyst/NAME or operator/NAME, as enrolled",
        )
    return tuple(data.items())


def _address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """Section [console]: web pages for operators and analysts; off without `listen`. Visitors are identified
    in one of two ways: by a certificate of the federation, or, if `trusted_header` is set, by that header in
    requests from `trusted_proxies`. `people` maps its names to identities. Raises RequestError: code
    `bad-config`, naming the key."""

    listen: str = key("", LISTENER)
    hosts: tuple[str, ...] = ()
    trusted_header: str = key("", KeyRule(HEADER.fullmatch, "{key} = {value!r} is no header name"))
    trusted_proxies: tuple[str, ...] = ()
    people: tuple[tuple[str, str], ...] = table(_people, ())
    max_watches: int = key(50, AT_LEAST_ONE)

    def __post_init__(self) -> None:
        check_rules(self)
        for one in self.hosts:
            ensure(HOST.fullmatch(one), BAD_HOST.format(key="hosts", value=one))
        for one in self.trusted_proxies:
            ensure(_address(one), f"trusted_proxies: {one!r} is not an IP address such as 127.0.0.1")
        whole = bool(self.trusted_proxies) and bool(self.people)
        ensure(
            whole if self.trusted_header else not (self.trusted_proxies or self.people),
            "trusted_header, trusted_proxies and people must all be set, or none of them; without them a "
            "visitor needs a certificate",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Contents of coordinator.toml; deploy/config/coordinator.example.toml explains every key. `host` is the
    name to which clients connect and that the certificate contains; `listen` is the address that is bound
    (`host` if empty). With port 0 the system chooses. Raises RequestError: code `bad-config`, naming the
    key."""

    federation: str
    host: str = key("127.0.0.1", KeyRule(HOST.fullmatch, BAD_HOST))
    listen: str = key("", KeyRule(lambda value: not value or HOST.fullmatch(value), BAD_HOST))
    port: int = key(7443, PORT)
    enrol_port: int = key(7444, PORT)
    state: Path
    database: str = key("", DATABASE)
    budget_epsilon: float = key(10.0, ABOVE_ZERO)
    budget_delta: float = key(1e-6, INSIDE_ONE)
    budget_mechanism_delta: float = key(1e-5, BELOW_ONE)
    noise: NoiseRule = NoiseRule.ANY
    max_epsilon_per_study: float = key(5.0, ABOVE_ZERO)
    max_delta_per_study: float = key(1e-6, BELOW_ONE)
    max_studies_per_analyst: int = key(8, AT_LEAST_ONE)
    max_share_per_analyst: float = key(0.5, at_most(1))
    max_submissions_per_day: int = key(200, AT_LEAST_ONE)
    max_submitted_mib_per_day: float = key(16.0, ABOVE_ZERO)
    operator_approval_above_epsilon: float = key(math.inf, FROM_ZERO)
    certificate_days: float = key(7.0, at_most(7))
    analyst_certificate_days: float = key(90.0, at_most(90))
    long_poll_seconds: float = key(30.0, at_most(50))
    approval_hours: float = key(168.0, HOURS)
    start_minutes: float = key(10.0, MINUTES)
    max_calls: int = key(4000, AT_LEAST_ONE)
    max_streams: int = key(100, AT_LEAST_ONE)
    max_uploads: int = key(64, AT_LEAST_ONE)
    max_watches: int = key(16, AT_LEAST_ONE)
    max_columns: int = key(2048, AT_LEAST_ONE)
    metrics: str = key("", LISTENER)
    health: str = key("", LISTENER)
    log_format: Format = Format.TEXT
    notify: NotifyAnalysts = section(NotifyAnalysts())  # noqa: RUF009 - frozen
    console: ConsoleConfig = section(ConsoleConfig())  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        ensure(
            NAME.fullmatch(self.federation) is not None,
            f"federation = {self.federation!r}: use lower-case letters, digits and hyphens",
        )
        check_rules(self)
        ensure(self.port != self.enrol_port or self.port == 0, "port and enrol_port must differ")
        self.budget  # noqa: B018 - raises for a budget with nothing to spend

    @property
    def budget(self) -> PrivacyBudget:
        """Total privacy budget of the federation."""
        return budget_for(self.budget_epsilon, self.budget_delta, self.budget_mechanism_delta, self.noise)

    def days(self, role: Role) -> float:
        """Return the lifetime of a certificate in days. Denial takes effect at once, whatever the lifetime. A
        short one limits the use of a stolen key of an unattended machine."""
        return self.analyst_certificate_days if role is Role.ANALYST else self.certificate_days

    @property
    def store(self) -> Path | str:
        """Database: a file, or the URL of a PostgreSQL database."""
        return self.database or self.files.database

    @property
    def files(self) -> Files:
        return Files(folder=self.state)


class Files:
    """Paths of one coordinator's files, all in one folder. Only the owner can read the keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "state.db"  # all durable state but keys, unless `database` names a server
        self.lock = folder / "serve.lock"  # locked while serving: two coordinators never share a folder
        self.presence = folder / "presence.json"  # time of each site's last call, only for `status`
        self.marker = folder / "behind.json"  # records that a site has seen a newer ledger [R20]
        self.ca_key = folder / "ca.key"  # secret key of the federation's certificate authority (PEM)
        # Certificates of the federation's certificate authorities (PEM); the first one issues.
        self.ca = folder / "ca.pem"
        # All lists of authorities that were in force, with their signatures, oldest first.
        self.authorities = folder / "authorities.json"
        # The next list while it waits for signatures by keys on other machines: the bytes to sign.
        self.draft = folder / "authorities.draft"
        self.server_key = folder / "server.key"  # secret key of both listeners (PEM)
        self.server = folder / "server.pem"  # certificate of both listeners (PEM); renewed while serving
        # Secret Ed25519 key that signs plans and releases (32 raw bytes).
        self.release_key = folder / "release.key"
        self.next_release_key = folder / "release.next"  # the one to come, until it signs
        self.audit_key = folder / "audit.key"  # secret key of the contributions' HMACs (32 raw bytes)
