"""A rolling upgrade in virtual time: seven days, twelve sites that are upgraded one after another, the
coordinator restarted between, and studies beside it.

A site that is not upgraded yet states what version 1.0 states, and reads no newer plan. Every study is made
at what all sites have, all end with a release, each release is the sum of the answers of its sites, and the
books of all agree: nothing is lost and nothing is charged twice."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from eigenveil.protocol import plan as plans
from eigenveil.protocol.capabilities import OWN, Capabilities
from eigenveil.protocol.plan import plan_from_json
from eigenveil.reporting.verify import load_release
from eigenveil_client.site.daemon import decisions
from eigenveil_client.site.daemon import service as site_daemon
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.database import open_store
from eigenveil_server.storage.study_reads import Studies
from tests.fuzz.hunt import memory_folder
from tests.server.masked.sites import masked_toml
from tests.server.rig import study_toml
from tests.support import signed_by_analyst
from tests.torture.programs.operations import COORDINATOR, template
from tests.torture.programs.programs import wrong_sums
from tests.torture.programs.virtual import Stuck, VirtualLoop, play
from tests.torture.programs.world import LIVE, World, world

SITES = tuple(f"site-{number:02}" for number in range(1, 13))
DAYS, DAY = 7.0, 86_400.0
STUDIES_A_DAY = 4
POLL_SECONDS = 50.0
ALGORITHM = "refined-cov"  # of which the versions have different revisions
EARLIER = replace(
    OWN, software="eigenveil 1.0.0", plan_max=7,
    revisions=dict(OWN.revisions) | {ALGORITHM: OWN.revisions[ALGORITHM][:1]},
)  # fmt: skip


@dataclass(slots=True)
class Rehearsal:
    """The versions of the sites by name, and the studies with the versions that they should have."""

    here: World
    versions: dict[str, Capabilities] = field(default_factory=lambda: dict.fromkeys(SITES, EARLIER))
    planned: dict[str, tuple[int, int]] = field(default_factory=dict)

    def to_proto(self) -> pb.Capabilities:
        """What the site states whose code runs now."""
        return self._of_caller().to_proto()

    def _of_caller(self) -> Capabilities:
        return self.versions.get(LIVE.get("").partition("#")[0], OWN)

    def verify_plan(self, data: bytes, *signed: Any) -> plans.Plan:
        """As a program of the site's version: one that is newer is refused, and so noticed."""
        plan = plans.verify_plan(data, *signed)
        if problem := self._of_caller().lacking(plan):
            self.here.faults.append(f"a site was sent a plan that it {problem}")
        return plan

    async def submit(self, number: int) -> None:
        """Submit a study: central, or masked, over all sites."""
        name, form = f"study-{number}", masked_toml if number % 2 else study_toml
        settings = {"attempts": 3} if number % 2 else {}
        toml = form(
            name=name, sites=SITES, columns=len(SITES), components=1, minimum_cohort=20, algorithm=ALGORITHM,
            epsilon=3.0, deadline_seconds=600.0, quorum=len(SITES) - 2, **settings,
        )  # fmt: skip
        explained = await self.here.query(
            "ExplainStudy",
            pb.ExplainStudyRequest(study_toml=toml, submission=name, capabilities=OWN.to_proto()),
        )
        plan = plan_from_json(explained.plan_json)
        every = [self.versions[site] for site in SITES]
        revision = min(one.revisions[ALGORITHM][-1] for one in every)
        self.planned[name] = min(one.plan_max for one in every), revision
        if (plan.version, plan.revision) != self.planned[name]:
            self.here.faults.append(f"{name} has plan version {plan.version}, revision {plan.revision}")
        until = self.here.clock(COORDINATOR) // 1000 + 5 * 86_400
        request = pb.SubmitStudyRequest(
            study_toml=toml, submission=name, authorization=signed_by_analyst(plan, expires=until).to_proto(),
            capabilities=OWN.to_proto(),
        )  # fmt: skip
        await self.here.query("SubmitStudy", request)

    async def upgrade(self, site: str) -> None:
        """Stop a site wherever it is, and start it as this version after a while."""
        self.here.kill(site)
        await asyncio.sleep(120.0)
        self.versions[site] = OWN
        await self.here.start(site)

    async def run(self, days: float) -> None:
        here, loop = self.here, asyncio.get_running_loop()
        for who in (COORDINATOR, *SITES):
            await here.start(who)
        studies = [
            loop.create_task(self._later(DAY * number / STUDIES_A_DAY, self.submit(number)))
            for number in range(round(days * STUDIES_A_DAY))
        ]
        for site in SITES:
            await asyncio.sleep(days * DAY / (len(SITES) + 1))
            await self.upgrade(site)
            if site == SITES[5]:
                here.kill(COORDINATOR)
                await asyncio.sleep(60.0)
                await here.start(COORDINATOR)
        await asyncio.gather(*studies)
        for _ in range(200):
            if "running" not in here.states().values():
                break
            await asyncio.sleep(60.0)
        here.look()

    @staticmethod
    async def _later(seconds: float, work: Any) -> None:
        await asyncio.sleep(seconds)
        await work

    def wrong_versions(self) -> Iterator[str]:
        """Releases that are not of the plan that was agreed."""
        store = open_store(self.here.config.files.database)
        try:
            studies = Studies(store.reader)
            for stored in studies.all():
                release = studies.release(stored.digest)
                if release is None:
                    yield f"{stored.name} has no release: {stored.failure}"
                    continue
                plan = load_release(release).document["plan"]
                if (plan["version"], plan["revision"]) != self.planned[stored.name]:
                    yield f"{stored.name} was released by another plan"
        finally:
            store.close()


@contextmanager
def versions(rehearsal: Rehearsal) -> Iterator[None]:
    with (
        mock.patch.object(site_daemon, "OWN", rehearsal),
        mock.patch.object(decisions, "verify_plan", rehearsal.verify_plan),
    ):
        yield


def rehearse(days: float, seed: int, made: Path) -> tuple[list[str], Counter[str]]:
    """What went wrong in an upgrade of so many days, and what happened."""
    logging.getLogger("eigenveil").setLevel(logging.CRITICAL + 1)
    with memory_folder() as folder:

        async def work(loop: VirtualLoop) -> tuple[list[str], Counter[str]]:
            with world(loop, folder, made, seed, SITES, POLL_SECONDS) as here:
                rehearsal = Rehearsal(here)
                with versions(rehearsal):
                    try:
                        await rehearsal.run(days)
                    except Stuck as problem:
                        here.faults.append(f"stuck: {problem}")
                result = Counter(here.states().values())
                result["mixed"] = sum(made_at == (7, 1) for made_at in rehearsal.planned.values())
                here.close()
                wrong = [*here.faults, *here.network.defects, *here.witness.faults]
                return [*wrong, *wrong_sums(here), *rehearsal.wrong_versions()], result

        return play(work, seed)


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    days = max(0.5, DAYS * scale)
    with template(SITES) as made:
        faults, result = rehearse(days, 1, made)
    faults += [f"no {what}" for what in ("released", "mixed") if not result[what]]
    return faults, (
        f"{days:g} days, {len(SITES)} sites upgraded one after another: {result['released']} studies "
        f"released, {result['failed']} failed; {result['mixed']} planned at the earlier version"
    )
