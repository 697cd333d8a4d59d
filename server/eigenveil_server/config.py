"""What an operator decides about a coordinator, and where its files are."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from eigenveil.accounting.zcdp import ATTO, Cost, micro_rho_for
from eigenveil.errors import Code, RequestError
from eigenveil.study.study import NAME
from eigenveil_common import log

CONFIG_NAME = "coordinator.toml"
MAX_HOURS = 24.0 * 366
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,252})")
COUNTS = (
    "max_calls",
    "max_streams",
    "max_uploads",
    "max_watches",
    "max_columns",
    "max_studies_per_analyst",
)


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise RequestError(Code.BAD_CONFIG, message)


def split_listen(address: str) -> tuple[str, int]:
    """Host and port of an address to listen on.

    Raises:
        RequestError: not of the form host:port.
    """
    host, _, port = address.rpartition(":")
    good = port.isascii() and port.isdigit() and int(port) < 65536 and HOST.fullmatch(host)
    _need(bool(good), f"{address!r} is no address to listen on; write host:port, such as 127.0.0.1:9464")
    return host, int(port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """coordinator.toml; deploy/config/coordinator.example.toml explains every key.

    `host` is the name that others dial and that the certificate carries; `listen` is the address
    that is bound (`host` when empty). A port of 0 lets the system choose.

    Raises:
        RequestError: code `bad-config`, naming the key.
    """

    federation: str
    host: str = "127.0.0.1"
    listen: str = ""
    port: int = 7443
    enrol_port: int = 7444
    state: Path
    database: str = ""
    budget_epsilon: float = 10.0
    budget_delta: float = 1e-6
    budget_own_delta: float = 1e-5
    max_epsilon_per_study: float = 5.0
    max_delta_per_study: float = 1e-6
    max_studies_per_analyst: int = 8
    max_share_per_analyst: float = 0.5
    approve_above_epsilon: float = math.inf
    certificate_days: float = 7.0
    long_poll_seconds: float = 30.0
    approval_hours: float = 168.0
    max_calls: int = 1000
    max_streams: int = 100
    max_uploads: int = 64
    max_watches: int = 16
    max_columns: int = 2048
    metrics: str = ""
    health: str = ""
    log_format: str = log.TEXT

    def __post_init__(self) -> None:
        _need(
            NAME.fullmatch(self.federation) is not None,
            f"federation = {self.federation!r}: use lower-case letters, digits and hyphens",
        )
        for key in ("host", "listen"):
            value = getattr(self, key)
            _need(
                HOST.fullmatch(value) is not None or (key == "listen" and not value),
                f"{key} = {value!r} is neither a host name nor an address",
            )
        _need(
            not self.database or self.database.startswith(("postgresql://", "postgres://")),
            "database must be a postgresql:// URL; leave it out for state.db in the state folder",
        )
        for key in ("metrics", "health"):
            if getattr(self, key):
                split_listen(getattr(self, key))
        log.check_format(self.log_format)
        for key in ("port", "enrol_port"):
            _need(0 <= getattr(self, key) < 65536, f"{key} must lie between 0 and 65535")
        _need(self.port != self.enrol_port or self.port == 0, "port and enrol_port must differ")
        for key in ("budget_epsilon", "max_epsilon_per_study", "certificate_days", "long_poll_seconds"):
            value = getattr(self, key)
            _need(math.isfinite(value) and value > 0, f"{key} must be a number above 0")
        _need(0 < self.budget_delta < 1, "budget_delta must lie strictly between 0 and 1")
        _need(0 <= self.max_delta_per_study < 1, "max_delta_per_study must lie between 0 and 1")
        _need(0 <= self.budget_own_delta < 1, "budget_own_delta must lie between 0 and 1")
        _need(0 < self.max_share_per_analyst <= 1, "max_share_per_analyst must lie above 0 and be at most 1")
        _need(self.approve_above_epsilon >= 0, "approve_above_epsilon must be 0, a number above, or inf")
        _need(self.certificate_days <= 7, "certificate_days must be at most 7")
        _need(self.long_poll_seconds <= 50, "long_poll_seconds must be at most 50")
        _need(0 <= self.approval_hours <= MAX_HOURS, f"approval_hours must lie between 0 and {MAX_HOURS:g}")
        self.budget  # noqa: B018 - refuses a budget that leaves nothing to spend
        for key in COUNTS:
            _need(getattr(self, key) >= 1, f"{key} must be at least 1")

    @property
    def address(self) -> str:
        """The address that is bound."""
        return self.listen or self.host

    @property
    def budget(self) -> Cost:
        """All that the federation's data may ever spend."""
        return Cost(
            micro_rho=micro_rho_for(self.budget_epsilon, self.budget_delta),
            atto_delta=int(self.budget_own_delta * ATTO),
        )

    @property
    def largest_study(self) -> int:
        """The most micro-rho that one study may reserve: max_epsilon_per_study, at the budget's delta."""
        return micro_rho_for(self.max_epsilon_per_study, self.budget_delta)

    @property
    def store(self) -> Path | str:
        """The database: a file, or the URL of a PostgreSQL database."""
        return self.database or self.files.database

    @property
    def files(self) -> Files:
        """Where the coordinator's files are."""
        return Files(folder=self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files of one coordinator, all in one folder; the keys are readable by the owner only."""

    folder: Path

    @property
    def database(self) -> Path:
        """Everything durable but keys, unless `database` names a server."""
        return self.folder / "state.db"

    @property
    def lock(self) -> Path:
        """Held while serving: two coordinators never share a folder."""
        return self.folder / "serve.lock"

    @property
    def ca_key(self) -> Path:
        """Secret key of the federation's certificate authority (PEM)."""
        return self.folder / "ca.key"

    @property
    def ca(self) -> Path:
        """Certificates of the federation's certificate authorities (PEM); the first one issues."""
        return self.folder / "ca.pem"

    @property
    def authorities(self) -> Path:
        """Every list of authorities that was in force, with its signatures, oldest first."""
        return self.folder / "authorities.json"

    @property
    def draft(self) -> Path:
        """The next list, while it waits for signatures of keys that are elsewhere: the bytes to be signed."""
        return self.folder / "authorities.draft"

    @property
    def server_key(self) -> Path:
        """Secret key of both listeners (PEM)."""
        return self.folder / "server.key"

    @property
    def server(self) -> Path:
        """Certificate of both listeners (PEM); renewed while serving."""
        return self.folder / "server.pem"

    @property
    def release_key(self) -> Path:
        """Secret Ed25519 key that signs plans and releases (32 raw bytes)."""
        return self.folder / "release.key"

    @property
    def audit_key(self) -> Path:
        """Secret key of the contributions' HMACs (32 raw bytes)."""
        return self.folder / "audit.key"
