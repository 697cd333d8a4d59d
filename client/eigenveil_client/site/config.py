"""site.toml: where a site's records and state are, and what it agrees to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eigenveil.dictionary.rules import ANY
from eigenveil.errors import Code, RequestError
from eigenveil.study.plain_values import plain, toml_text
from eigenveil.study.study import NAME
from eigenveil_client.connection.proxy import DIRECT, ProxyRule
from eigenveil_client.records.overflow.scratch import Scratch
from eigenveil_client.records.recoding.rule import ColumnRule, rules
from eigenveil_client.records.tables.config import RecordsConfig
from eigenveil_client.site.engine_config import EngineConfig, Kind
from eigenveil_client.site.policy import Policy
from eigenveil_common import config
from eigenveil_common.files import is_there, make_folder, write_durably
from eigenveil_common.log import Format
from eigenveil_common.notify.config import Notify

ANALYSTS = (
    '# Nobody may ask until an analyst is named here, by the name in the certificate: analysts = ["NAME"]\n'
)
HEADING = "# A site's configuration. Every key, with its meaning: eigenveil-site example\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteConfig:
    """site.toml, whose keys are these, the policy's and the proxy's: deploy/config/site.example.toml explains
    them. Paths are absolute. `column` are the tables [column.NAME]."""

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
        config.need(
            NAME.fullmatch(self.name) is not None,
            f"name = {self.name!r}: use at most 63 lower-case letters, digits and hyphens",
        )
        person = self.policy.person_column
        named = person and any(person in rule.columns for rule in self.column)
        config.need(not named, f"[column.{person}]: what names a person is not recoded; rename the rule")
        gathered = [rule.name for rule in self.column if rule.rows is not None]
        config.need(
            person or not gathered,
            f"[column.{', column.'.join(gathered)}]: rows is about a person's rows; state person_column",
        )
        spread = self.engine.kind is Kind.DASK
        config.need(
            not spread or self.records.is_files,
            '[engine] kind = "dask": its workers read files; name a folder of Parquet files, without sql',
        )
        config.need(
            not (spread and person),
            '[engine] kind = "dask": rows of one person may lie in several files, which are then several '
            "records; write one row for each person, and leave out person_column",
        )
        allowed = (ANY, *self.policy.columns)
        strange = [] if ANY in self.policy.columns else [one for one in self.offers if one not in allowed]
        config.need(not strange, f"offers: {', '.join(strange)} may not be used by studies (see columns)")

    @property
    def scratch(self) -> Scratch:
        """Where what does not fit into memory lies: beside the state."""
        return Scratch(folder=self.state.with_name("grids"), encrypt=self.engine.encrypt)


def load(path: Path) -> SiteConfig:
    """The configuration in `path`.

    Raises:
        RequestError: code `bad-config`, naming the key.
    """
    return config.load(path, SiteConfig)


def create(folder: Path, *, name: str, records: Path, policy: Policy) -> Path:
    """Write folder/site.toml, with every key of the policy, and return its path.

    Raises:
        RequestError: it is there already, or a value is refused.
        InternalError: code `storage`.
    """
    path = folder / "site.toml"
    if is_there(path):
        raise RequestError(Code.CONFLICT, f"{path} is there already; edit it, or choose another folder")
    stated = {"name": name, "records": str(records.resolve()), "identity": "identity", "state": "state.db"}
    for name, value in config.values(policy).items():
        stated[name] = "" if value is None else plain(value)
    make_folder(folder, mode=0o700)
    text = toml_text(stated)
    if not policy.analysts:
        text = text.replace("\nanalysts = ", f"\n{ANALYSTS}analysts = ")
    write_durably(path, f"{HEADING}{text}".encode(), mode=0o640)
    try:
        load(path)
    except RequestError:
        path.unlink()
        raise
    return path
