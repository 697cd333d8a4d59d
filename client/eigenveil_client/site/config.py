"""site.toml: where a site's records and state are, and what it agrees to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import TypeVar

from eigenveil.errors import Code, RequestError
from eigenveil.queries.batch import FEWEST_IN_BATCH
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import NAME
from eigenveil_client.connection.proxy import ProxyRule
from eigenveil_client.site.policy import ANY, Approval, Policy
from eigenveil_client.years import Year
from eigenveil_common import config, log
from eigenveil_common.files import is_there, make_folder, write_durably

# What `auto` chooses from; a site that wants to allow more says so by name.
ALGORITHMS = (Algorithm.GAUSS_COV.value, Algorithm.DP_PCA.value)


Choice = TypeVar("Choice", bound=Enum)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteConfig:
    """Every key of site.toml; deploy/config/site.example.toml explains them. Paths are absolute."""

    name: str
    records: Path
    identity: Path
    state: Path
    approval: str = Approval.AUTO.value
    approval_ends: str = ""
    analysts: tuple[str, ...] = (ANY,)
    columns: tuple[str, ...] = (ANY,)
    max_columns_per_record: float = 2.0
    algorithms: tuple[str, ...] = ALGORITHMS
    max_epsilon_per_study: float = 5.0
    max_delta: float = 1e-5
    minimum_records: int = 20
    maximum_records: int = 100_000
    minimum_records_per_part: int = FEWEST_IN_BATCH
    person_column: str = ""
    sites_per_person: int = 1
    budget_epsilon: float = 10.0
    budget_delta: float = 1e-6
    budget_own_delta: float = 1e-5
    max_epsilon_per_year: float = math.inf
    year: str = Year.ROLLING.value
    proxy: str = ""
    proxy_credentials: Path | None = None
    log_format: str = log.TEXT
    metrics_file: Path | None = None

    def __post_init__(self) -> None:
        if NAME.fullmatch(self.name) is None:
            raise RequestError(
                Code.BAD_CONFIG,
                f"name = {self.name!r}: use at most 63 lower-case letters, digits and hyphens",
            )
        log.check_format(self.log_format)
        _ = self.proxy_rule

    @property
    def proxy_rule(self) -> ProxyRule:
        """The way to the coordinator."""
        return ProxyRule(url=self.proxy, credentials=self.proxy_credentials)

    @property
    def policy(self) -> Policy:
        """What this site agrees to."""
        return Policy(
            approval=_choice(Approval, "approval", self.approval),
            approval_ends=_day(self.approval_ends),
            analysts=self.analysts,
            max_columns_per_record=self.max_columns_per_record,
            max_epsilon_per_year=self.max_epsilon_per_year,
            year=_choice(Year, "year", self.year),
            columns=self.columns,
            algorithms=self.algorithms,
            max_epsilon_per_study=self.max_epsilon_per_study,
            max_delta=self.max_delta,
            minimum_records=self.minimum_records,
            maximum_records=self.maximum_records,
            minimum_records_per_part=self.minimum_records_per_part,
            person_column=self.person_column,
            sites_per_person=self.sites_per_person,
            budget_epsilon=self.budget_epsilon,
            budget_delta=self.budget_delta,
            budget_own_delta=self.budget_own_delta,
        )


def _choice(kind: type[Choice], key: str, value: str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(f'"{one.value}"' for one in kind)
        raise RequestError(Code.BAD_CONFIG, f"{key} = {value!r} must be one of {known}") from None


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise RequestError(
            Code.BAD_CONFIG, f'approval_ends = {text!r} must be a day such as "2027-12-31", or "" for no end'
        ) from None


def load(path: Path) -> SiteConfig:
    """The configuration in `path`.

    Raises:
        RequestError: code `bad-config`, naming the key.
    """
    loaded = config.load(path, SiteConfig)
    _ = loaded.policy  # its values are checked now, not at the first study
    return loaded


TEMPLATE = """\
# A site's configuration. Every key, with its meaning: eigenveil-site example

name = {name}
records = {records}
identity = "identity"
state = "state.db"

approval = "auto"
approval_ends = ""
analysts = ["*"]
columns = ["*"]
max_columns_per_record = 2.0
algorithms = [{algorithms}]
max_epsilon_per_study = {max_epsilon}
max_delta = 1e-5
minimum_records = {minimum_records}
maximum_records = {maximum_records}
minimum_records_per_part = {per_part}
person_column = {person_column}
sites_per_person = {sites_per_person}
budget_epsilon = {budget_epsilon}
budget_delta = {budget_delta}
budget_own_delta = 1e-5
max_epsilon_per_year = inf
year = "rolling"
"""


def create(
    folder: Path,
    *,
    name: str,
    records: Path,
    minimum_records: int,
    maximum_records: int,
    person_column: str,
    sites_per_person: int,
    budget_epsilon: float,
    budget_delta: float,
    max_epsilon_per_study: float,
    algorithms: tuple[str, ...] = ALGORITHMS,
) -> Path:
    """Write folder/site.toml and return its path.

    Raises:
        RequestError: it is there already, or a value is refused.
        InternalError: code `storage`.
    """
    path = folder / "site.toml"
    if is_there(path):
        raise RequestError(Code.CONFLICT, f"{path} is there already; edit it, or choose another folder")
    make_folder(folder, mode=0o700)
    text = TEMPLATE.format(
        name=_quoted(name),
        records=_quoted(str(records.resolve())),
        algorithms=", ".join(map(_quoted, algorithms)),
        max_epsilon=max_epsilon_per_study,
        minimum_records=minimum_records,
        maximum_records=maximum_records,
        per_part=FEWEST_IN_BATCH,
        person_column=_quoted(person_column),
        sites_per_person=sites_per_person,
        budget_epsilon=budget_epsilon,
        budget_delta=budget_delta,
    )
    write_durably(path, text.encode(), mode=0o640)
    try:
        load(path)
    except RequestError:
        path.unlink()
        raise
    return path


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
