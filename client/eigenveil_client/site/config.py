"""Configuration of a site in site.toml, its plausible ranges, and its statement to its federation, without
data of records [R23]. A study has no influence on the ranges: otherwise an analyst could learn from a series
of declined studies how many values exceed a bound."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.directory import SiteStatement
from eigenveil.dictionary.formats import parse_dictionary
from eigenveil.dictionary.site_limits import MAX_MEMORY_MIB, StatedLimits
from eigenveil.dictionary.site_rules import ANY
from eigenveil.errors import Code, RequestError
from eigenveil.study.checks import to_plain, toml_text
from eigenveil.study.study import NAME
from eigenveil_client.connection.cluster import ClusterAddress
from eigenveil_client.connection.identity import folder_identity, load_identity
from eigenveil_client.connection.proxy import DIRECT, ProxyRule
from eigenveil_client.connection.session_start import stored_dictionary
from eigenveil_client.records.column_quality import PlausibleRange, PlausibleRanges
from eigenveil_client.records.isolated.process import MEMORY_MIB, ReaderLimits
from eigenveil_client.records.isolated.reader import Reader
from eigenveil_client.records.recoding.offered import OfferedColumns
from eigenveil_client.records.recoding.rule import ColumnRule, rules
from eigenveil_client.records.scratch_files import Scratch
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.policy import Approval, Policy
from eigenveil_client.site.roster.peers import allowed_trust
from eigenveil_common import config
from eigenveil_common.config import AT_LEAST_ONE, between, check_rules, ensure, key
from eigenveil_common.examples import example
from eigenveil_common.files import make_folder, path_exists, read_text, write_durably
from eigenveil_common.log import Format
from eigenveil_common.notify.config import Notify


class EngineKind(Enum):
    """Storage: `auto` is memory up to `memory_mib` for each study, then a file; `dask` is a cluster."""

    AUTO = "auto"
    MEMORY = "memory"
    DISK = "disk"
    DASK = "dask"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The keys of `[engine]`, which deploy/config/site.example.toml explains. Raises RequestError: code
    `bad-config`."""

    kind: EngineKind = EngineKind.AUTO
    memory_mib: int = key(64, AT_LEAST_ONE)
    encrypt: bool = True
    keep_hours: float = key(0.0, between(0, 24 * 31))
    keep_mib: int = key(2048, AT_LEAST_ONE)
    cluster: ClusterAddress = ClusterAddress()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        check_rules(self)
        ensure(self.encrypt or not self.keep_hours, "[engine] keep_hours needs encrypt = true. State one")
        on_cluster, stated = self.kind is EngineKind.DASK, bool(self.cluster.scheduler)
        ensure(stated == on_cluster, '[engine] kind = "dask" and a scheduler need each other')

    @property
    def memory_limit_mib(self) -> int | None:
        """Limit of the memory for records that a query needs all at once; None if no setting limits it."""
        limited = self.kind in (EngineKind.AUTO, EngineKind.DISK)
        return min(self.memory_mib, MAX_MEMORY_MIB) if limited else None

    @property
    def reading(self) -> ReaderLimits:
        """Limits of a process that reads records."""
        return ReaderLimits(memory_mib=MEMORY_MIB + self.memory_mib)


ANALYSTS = (
    '# Every study is declined until an analyst is named here, as in the certificate: analysts = ["NAME"]\n'
)
HEADING = "# A site's configuration. All keys with their meaning: eigenveil-site example\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteConfig:
    """Content of site.toml: these keys, the policy's and the proxy's.

    deploy/config/site.example.toml explains them. Paths are absolute. `column` are the tables [column.NAME].
    """

    name: str
    records: RecordsConfig = config.section()  # noqa: RUF009 - a field
    identity: Path
    state: Path
    column: tuple[ColumnRule, ...] = config.table(rules, ())
    policy: Policy = Policy()  # noqa: RUF009 - frozen
    proxy_rule: ProxyRule = DIRECT
    dictionary: Path | None = None
    offers: tuple[str, ...] = ()
    log_format: Format = Format.TEXT
    metrics_file: Path | None = None
    engine: EngineConfig = config.section(EngineConfig())  # noqa: RUF009 - frozen
    notify: Notify = config.section(Notify())  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        config.ensure(
            NAME.fullmatch(self.name) is not None,
            f"name = {self.name!r}: use at most 63 lower-case letters, digits and hyphens",
        )
        self._check_person()
        self._check_missing()
        person = self.policy.person_column
        row_rules = [rule.name for rule in self.column if rule.rows is not None]
        config.ensure(
            person or not row_rules,
            f"[column.{', column.'.join(row_rules)}]: rows needs person_column; state it",
        )
        on_cluster = self.engine.kind is EngineKind.DASK
        config.ensure(
            not on_cluster or self.records.is_files,
            '[engine] kind = "dask" reads files only; state a folder of Parquet files, without sql',
        )
        config.ensure(
            not (on_cluster and person),
            '[engine] kind = "dask" cannot combine the rows of one person from several files; '
            "write one row for each person, and leave out person_column",
        )
        allowed = (ANY, *self.policy.columns)
        other = [] if ANY in self.policy.columns else [one for one in self.offers if one not in allowed]
        config.ensure(not other, f"offers: {', '.join(other)} not allowed by columns; see columns")

    def _check_person(self) -> None:
        """Check that no rule recodes the person column, and that the records' own name of it renames one."""
        person, own = self.policy.person_column, self.records.person
        for rule in self.column:
            name = f"write [records] person = {json.dumps(rule.header, ensure_ascii=False)} instead"
            todo = name if rule.source and not own else "remove the rule"
            config.ensure(
                not person or not {person, own} & {*rule.columns},
                f"[column.{rule.name}]: a rule cannot name the person column; {todo}",
            )
        needed = "[records] person needs person_column, its name in studies; state both"
        config.ensure(person or not own, needed)

    def _check_missing(self) -> None:
        """Check that the words for "missing" in the whole file have no other meaning in a rule."""
        for rule in self.column:
            try:
                rule.with_missing(self.records.missing)
            except RequestError as problem:
                where = f"[column.{rule.name}] and [records]"
                raise RequestError(problem.code, f"{where}: {problem}") from problem

    @property
    def person_header(self) -> str:
        """The records' own name of the person column; empty without one."""
        return self.records.person or self.policy.person_column

    @property
    def offered(self) -> OfferedColumns:
        """The columns that studies may use, and those that a setting names."""
        persons = (self.policy.person_column, self.records.person)
        named = {*self.offers, *self.policy.columns, *plausible_ranges(self)} - {ANY}
        return OfferedColumns(
            allowed=self.policy.columns, named=frozenset(named), persons=tuple(filter(None, persons))
        )

    @property
    def limits(self) -> StatedLimits:
        """Limits on persons, records, and the memory for records that a query needs all at once."""
        return replace(self.policy.limits, memory_mib=self.engine.memory_limit_mib)

    @property
    def scratch(self) -> Scratch:
        """Folder for records that do not fit into memory: beside the state."""
        return Scratch(folder=self.state.with_name("grids"), encrypt=self.engine.encrypt)


def load(path: Path) -> SiteConfig:
    """Return the configuration in `path`. Raises RequestError, code `bad-config`, naming the key."""
    return config.load(path, SiteConfig)


def create(folder: Path, *, name: str, records: Path, policy: Policy) -> Path:
    """Write folder/site.toml, with every key of the policy and `disclose_settings`, and return its path.
    Raises RequestError: the file exists already or a value is invalid; InternalError, code `storage`."""
    stated = {"name": name, "records": str(records.resolve())}
    return write(folder, toml_text(stated | first_keys(name, policy)))


def first_keys(name: str, policy: Policy) -> dict[str, Any]:
    """Return the keys of a first site.toml: the site's name, the usual places, and the policy, whose settings
    are stated."""
    keys = config.values(replace(policy, disclose_settings=True))
    stated = {key: "" if value is None else to_plain(value) for key, value in keys.items()}
    return {"name": name, "identity": "identity", "state": "state.db"} | stated


def write(folder: Path, text: str) -> Path:
    """Write folder/site.toml with a heading, and return its path. Raises as `create`."""
    path = folder / "site.toml"
    check_unwritten(folder)
    make_folder(folder, mode=0o700)
    write_durably(path, headed(text).encode(), mode=0o640)
    try:
        load(path)
    except RequestError:
        path.unlink()
        raise
    return path


def replace_text(path: Path, text: str) -> None:
    """Write another text of site.toml. Raises RequestError, code `bad-config`: it is invalid, and the former
    one stays."""
    former, mode = path.read_bytes(), path.stat().st_mode & 0o777
    write_durably(path, text.encode(), mode=mode)
    try:
        load(path)
    except RequestError:
        write_durably(path, former, mode=mode)
        raise


def check_unwritten(folder: Path) -> None:
    """Raise RequestError, code `conflict`, if a folder has a site.toml."""
    if path_exists(folder / "site.toml"):
        todo = "edit it, or choose another folder"
        raise RequestError(Code.CONFLICT, f"{folder / 'site.toml'} exists already; {todo}")


def headed(text: str) -> str:
    """Return the text of a site.toml below a heading, with a comment where no analyst is named."""
    return HEADING + text.replace("\nanalysts = []", f"\n{ANALYSTS}analysts = []")


def record_reader(config: SiteConfig) -> Reader:
    """Return the reader of this site's records for studies. Raises as `site_dictionary`."""
    return Reader(
        config.records, config.column, plausible_ranges(config), config.scratch, config.engine.reading,
        config.policy.maximum_records, config.offered,
    )  # fmt: skip


def site_dictionary(path: Path | None) -> Dictionary:
    """Return the dictionary in `path`; without a path, the packaged one. Raises RequestError if it cannot be
    read."""
    return parse_dictionary(example("dictionary") if path is None else read_text(path))


def federation_dictionary(config: SiteConfig) -> Dictionary | None:
    """Return the dictionary last received from the federation; None if there is none."""
    enrolled = folder_identity(config.identity) is not None
    return stored_dictionary(load_identity(config.identity)) if enrolled else None


def dictionary_in_force(config: SiteConfig) -> Dictionary:
    """Return the dictionary whose names and units studies use: the federation's as last received, or else the
    site's. Raises RequestError: it cannot be read."""
    return federation_dictionary(config) or site_dictionary(config.dictionary)


def plausible_ranges(config: SiteConfig) -> PlausibleRanges:
    """Return the plausible range of each column, or else its bounds, by the site's dictionary."""
    return {
        column.name: PlausibleRange(
            lower=one.lower if one.plausible_lower is None else one.plausible_lower,
            upper=one.upper if one.plausible_upper is None else one.plausible_upper,
            unit=one.unit,
        )
        for one in site_dictionary(config.dictionary).columns
        for column in one.columns
    }


def statement_of(config: SiteConfig) -> SiteStatement:
    """Return the statement of a site with this configuration. Raises RequestError: code `bad-config`, too
    many offered columns, or names that cannot be shown."""
    needs_approval, rules = config.policy.approval is Approval.MANUAL, asdict(config.policy.quality)
    trust, offers = allowed_trust(config.identity, config.policy.secrecy), config.offers or None
    if ANY in config.offers:  # every column, if a key lists them: the records are not read
        offers = None if ANY in config.policy.columns else config.policy.columns
    try:
        return SiteStatement(
            columns=offers,
            needs_approval=needs_approval,
            study_rules=replace(config.policy.stated, trust=trust),
            limits=config.limits if config.policy.disclose_settings else None,
            **rules,
        )
    except RequestError as problem:
        raise RequestError(Code.BAD_CONFIG, f"offers: {problem}") from problem
