"""What the studies of one process run on."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.noise.source import NoiseSource
from eigenveil.protocol.plan import Plan
from eigenveil_server.compute import Compute
from eigenveil_server.metrics import Metrics
from eigenveil_server.pki.keys import Keys
from eigenveil_server.planning.pool import PlanningPool
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.studies.signal import Signals


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Made once and shared by every study; whoever needs less of it is handed less."""

    repository: Repository
    keys: Keys
    noise: NoiseSource
    compute: Compute
    planning: PlanningPool
    signals: Signals
    metrics: Metrics

    async def plan(self, stored: StoredStudy) -> Plan:
        """The plan of a study, read. Raises as `Studies.plan_of`."""
        return await self.compute.run(self.repository.studies.plan_of, stored)

    def close(self) -> None:
        """Wait for what is under way, then close the database."""
        self.planning.close()
        self.compute.close()
        self.repository.close()
