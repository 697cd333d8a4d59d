"""The table `[engine]` of site.toml: where the records of running studies are held."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from eigenveil_client.connection.cluster import ClusterAddress
from eigenveil_client.records.apart.process import MEMORY_MIB, Limits
from eigenveil_common.config import AT_LEAST_ONE, check_rules, key, need


class Kind(Enum):
    """`auto`: in memory up to `memory_mib` for each study, in a file beyond that; `dask`: on a cluster."""

    AUTO = "auto"
    MEMORY = "memory"
    DISK = "disk"
    DASK = "dask"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The keys of `[engine]`, which deploy/config/site.example.toml explains.

    Raises:
        RequestError: code `bad-config`.
    """

    kind: Kind = Kind.AUTO
    memory_mib: int = key(64, AT_LEAST_ONE)
    encrypt: bool = True
    cluster: ClusterAddress = ClusterAddress()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        check_rules(self)
        stated = bool(self.cluster.scheduler)
        need(stated == (self.kind is Kind.DASK), '[engine] kind = "dask" goes with a scheduler')

    @property
    def reading(self) -> Limits:
        """What a process that reads records may take."""
        return Limits(memory_mib=MEMORY_MIB + self.memory_mib)
