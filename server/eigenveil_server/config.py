"""What an operator decides about a coordinator, and where its files are."""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.accounting.budget import Budget, NoiseRule, budget_for
from eigenveil.identity import Role
from eigenveil.study.study import NAME
from eigenveil_common.config import (
    ABOVE_ZERO,
    AT_LEAST_ONE,
    BELOW_ONE,
    INSIDE_ONE,
    Rule,
    check_rules,
    key,
    need,
    section,
    table,
)
from eigenveil_common.log import Format
from eigenveil_common.notify.config import NotifyAnalysts

CONFIG_NAME = "coordinator.toml"
MAX_HOURS = 24.0 * 366
MAX_MINUTES = 7 * 24 * 60.0
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,252})")
HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]{0,63})?")
PERSON = re.compile(r"(analyst|operator)/[a-z0-9-]{1,63}")
NO_HOST = "{key} = {value!r} is neither a host name nor an address"
DATABASE = Rule(
    holds=lambda value: not value or value.startswith(("postgresql://", "postgres://")),
    words="{key} must be a postgresql:// URL; leave it out for state.db in the state folder",
)
FROM_ZERO = Rule(holds=lambda value: value >= 0, words="{key} must be 0, a number above, or inf")
HOURS = Rule(
    holds=lambda value: 0 <= value <= MAX_HOURS, words=f"{{key}} must lie between 0 and {MAX_HOURS:g}"
)
MINUTES = Rule(
    holds=lambda value: 0 <= value <= MAX_MINUTES, words=f"{{key}} must lie between 0 and {MAX_MINUTES:g}"
)
LISTENER = Rule(holds=lambda value: not value or bool(split_listen(value)), words="")  # it raises itself
PORT = Rule(holds=lambda value: 0 <= value < 65536, words="{key} must lie between 0 and 65535")


def at_most(most: int) -> Rule:
    """Above 0, and no more than that."""
    return Rule(
        holds=lambda value: 0 < value <= most, words=f"{{key}} must lie above 0 and be at most {most}"
    )


def split_listen(address: str) -> tuple[str, int]:
    """Host and port of an address to listen on.

    Raises:
        RequestError: not of the form host:port.
    """
    host, _, port = address.rpartition(":")
    good = port.isascii() and port.isdigit() and int(port) < 65536 and HOST.fullmatch(host)
    need(bool(good), f"{address!r} is no address to listen on; write host:port, such as 127.0.0.1:9464")
    return host, int(port)


def _people(data: Any) -> tuple[tuple[str, str], ...]:
    """Whom a proxy names, and as what they enrolled: `"alice@example.org" = "analyst/alice"`."""
    need(isinstance(data, dict), "people must be a table [console.people]")
    for name, who in data.items():
        need(
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
class Console:
    """[console], pages for operators and analysts; without `listen` there are none.

    Who visits is known in exactly one way: by a certificate of the federation, or, where `trusted_header` is
    stated, by that header of a request from one of `trusted_proxies`. `people` says who its names are.

    Raises:
        RequestError: code `bad-config`, naming the key.
    """

    listen: str = key("", LISTENER)
    hosts: tuple[str, ...] = ()
    trusted_header: str = key("", Rule(holds=HEADER.fullmatch, words="{key} = {value!r} is no header's name"))
    trusted_proxies: tuple[str, ...] = ()
    people: tuple[tuple[str, str], ...] = table(_people, ())
    max_watches: int = key(50, AT_LEAST_ONE)

    def __post_init__(self) -> None:
        check_rules(self)
        for one in self.hosts:
            need(HOST.fullmatch(one), NO_HOST.format(key="hosts", value=one))
        for one in self.trusted_proxies:
            need(_address(one), f"trusted_proxies: {one!r} is no address such as 127.0.0.1")
        whole = bool(self.trusted_proxies) and bool(self.people)
        need(
            whole if self.trusted_header else not (self.trusted_proxies or self.people),
            "trusted_header, trusted_proxies and people come together or not at all: a visitor is known by "
            "the header of a proxy that is named here, or by a certificate",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """coordinator.toml; deploy/config/coordinator.example.toml explains every key.

    `host` is the name that others dial and that the certificate carries; `listen` is the address
    that is bound (`host` when empty). A port of 0 lets the system choose.

    Raises:
        RequestError: code `bad-config`, naming the key.
    """

    federation: str
    host: str = key("127.0.0.1", Rule(holds=lambda value: HOST.fullmatch(value) is not None, words=NO_HOST))
    listen: str = key("", Rule(holds=lambda value: not value or HOST.fullmatch(value), words=NO_HOST))
    port: int = key(7443, PORT)
    enrol_port: int = key(7444, PORT)
    state: Path
    database: str = key("", DATABASE)
    budget_epsilon: float = key(10.0, ABOVE_ZERO)
    budget_delta: float = key(1e-6, INSIDE_ONE)
    budget_own_delta: float = key(1e-5, BELOW_ONE)
    noise: NoiseRule = NoiseRule.ANY
    max_epsilon_per_study: float = key(5.0, ABOVE_ZERO)
    max_delta_per_study: float = key(1e-6, BELOW_ONE)
    max_studies_per_analyst: int = key(8, AT_LEAST_ONE)
    max_share_per_analyst: float = key(0.5, at_most(1))
    max_submissions_per_day: int = key(200, AT_LEAST_ONE)
    max_submitted_mib_per_day: float = key(16.0, ABOVE_ZERO)
    approve_above_epsilon: float = key(math.inf, FROM_ZERO)
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
    console: Console = section(Console())  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        need(
            NAME.fullmatch(self.federation) is not None,
            f"federation = {self.federation!r}: use lower-case letters, digits and hyphens",
        )
        check_rules(self)
        need(self.port != self.enrol_port or self.port == 0, "port and enrol_port must differ")
        self.budget  # noqa: B018 - refuses a budget that leaves nothing to spend

    @property
    def budget(self) -> Budget:
        """All that the federation's data may ever spend."""
        return budget_for(self.budget_epsilon, self.budget_delta, self.budget_own_delta, self.noise)

    def days(self, role: Role) -> float:
        """The life of a certificate. Who is denied is shut out at once, however long theirs would last; a
        short one bounds what a stolen key is good for at a machine that is always on, which none watches."""
        return self.analyst_certificate_days if role is Role.ANALYST else self.certificate_days

    @property
    def store(self) -> Path | str:
        """The database: a file, or the URL of a PostgreSQL database."""
        return self.database or self.files.database

    @property
    def files(self) -> Files:
        return Files(folder=self.state)


class Files:
    """The files of one coordinator, all in one folder; the keys are readable by the owner only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "state.db"  # everything durable but keys, unless `database` names a server
        self.lock = folder / "serve.lock"  # held while serving: two coordinators never share a folder
        self.presence = folder / "presence.json"  # when each site called last, for `status` alone
        self.marker = folder / "behind.json"  # that the ledger is older than what a site has seen [R20]
        self.ca_key = folder / "ca.key"  # secret key of the federation's certificate authority (PEM)
        # Certificates of the federation's certificate authorities (PEM); the first one issues.
        self.ca = folder / "ca.pem"
        # Every list of authorities that was in force, with its signatures, oldest first.
        self.authorities = folder / "authorities.json"
        # The next list, while it waits for signatures of keys that are elsewhere: the bytes to be signed.
        self.draft = folder / "authorities.draft"
        self.server_key = folder / "server.key"  # secret key of both listeners (PEM)
        self.server = folder / "server.pem"  # certificate of both listeners (PEM); renewed while serving
        # Secret Ed25519 key that signs plans and releases (32 raw bytes).
        self.release_key = folder / "release.key"
        self.audit_key = folder / "audit.key"  # secret key of the contributions' HMACs (32 raw bytes)
