"""A rolling upgrade in virtual time: seven days, twelve sites that are upgraded one after another, the
coordinator restarted between, and studies beside it. At three sites a person decides about each study.

All code is of this version. A site that is not upgraded yet states the protocol version and the capabilities
that its earlier wheel states, and a plan that exceeds them is a fault. Every study is planned at the highest
versions that all sites have and ends with a release, each release is the sum of the answers of its sites, and
all ledgers agree with it.

All databases are new. Those of earlier versions are upgraded in tests/common/storage/test_earlier_tables.py,
tests/torture/crashes/upgrades.py and tests/compat, where tests/compat/test_rolling.py runs the earlier
programs themselves."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from eigenveil.protocol import plan as plans
from eigenveil.protocol.capabilities import OWN, Capabilities, capabilities_from_dict
from eigenveil.protocol.plan import plan_from_json
from eigenveil.reporting.verify import load_release
from eigenveil_client.connection import session_start
from eigenveil_client.connection.channel import negotiate_version
from eigenveil_client.site.daemon import connection, decisions
from eigenveil_client.site.daemon import service as site_daemon
from eigenveil_client.site.state import store as site_store
from eigenveil_client.site.state.received_plans import ConsentStatus, PersonDecision
from eigenveil_common.rpc import VERSION_MAX
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rpc import callers
from eigenveil_server.storage.database import open_store
from eigenveil_server.storage.study_reads import Studies
from eigenveil_server.studies import operator_approvals
from tests.compat.parties import WHEELS, environment, unpacked
from tests.fuzz.hunt import memory_folder
from tests.server.masked.sites import masked_toml
from tests.server.rig import study_toml
from tests.support import signed_by_analyst
from tests.torture.programs.operations import COORDINATOR, template
from tests.torture.programs.programs import wrong_sums
from tests.torture.programs.virtual import Stuck, VirtualLoop, play
from tests.torture.programs.world import LIVE, World, world

SITES = tuple(f"site-{number:02}" for number in range(1, 13))
DAYS, DAY, MINUTE = 7.0, 86_400.0, 60.0
STUDIES_A_DAY = 4
POLL_SECONDS = 50.0
PERSON_SECONDS = 15 * MINUTE  # until a person looks for studies again
MANUAL = (SITES[2], SITES[7], SITES[10])  # sites where a person decides
ALGORITHM = "refined-cov"  # of which the versions have different revisions
NEWEST = OWN.plan_max, OWN.revisions[ALGORITHM][-1]
STATED = """
import json
from dataclasses import asdict
from eigenveil.protocol.capabilities import OWN
from eigenveil_common.rpc import VERSION_MAX
print(json.dumps([VERSION_MAX, asdict(OWN)]))
"""


@dataclass(frozen=True, slots=True)
class Program:
    """Versions that the program of a site states: of the protocol, the highest, and its capabilities."""

    protocol: int
    capabilities: Capabilities


CURRENT = Program(VERSION_MAX, OWN)


def earlier_program(folder: Path) -> Program:
    """Return what the newest earlier wheel states; it is unpacked into `folder`."""
    env = environment(unpacked(WHEELS[-1], folder), 0.0)
    stated = subprocess.run([sys.executable, "-c", STATED], env=env, check=True, capture_output=True).stdout
    protocol, capabilities = json.loads(stated)
    return Program(protocol, capabilities_from_dict(capabilities))


@dataclass(slots=True)
class Rehearsal:
    """The versions of the sites by name, and the studies with the versions that they should have."""

    here: World
    versions: dict[str, Program]
    planned: dict[str, tuple[int, int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def to_proto(self) -> pb.Capabilities:
        """Return the capabilities that the site states whose code runs now."""
        return self._of_caller().capabilities.to_proto()

    def _of_caller(self) -> Program:
        return self.versions[LIVE.get().partition("#")[0]]

    async def negotiate_version(
        self, stub: Any, software: str, seconds: float, extra: pb.HelloRequest
    ) -> pb.HelloResponse:
        """Greet with the site's version of the protocol."""
        program = self._of_caller()
        extra.version_max = program.protocol
        hello = await negotiate_version(stub, software, seconds, extra)
        if hello.version != program.protocol:
            self.here.faults.append(f"protocol {hello.version} was agreed with a site of {program.protocol}")
        self.counts["earlier" if program is not CURRENT else "current"] += 1
        return hello

    def verify_plan(self, data: bytes, *signed: Any) -> plans.Plan:
        """Return the plan; one that exceeds the site's program is a fault."""
        plan = plans.verify_plan(data, *signed)
        if problem := self._of_caller().capabilities.lacking(plan):
            self.here.faults.append(f"a site was sent a plan, but {problem}")
        return plan

    async def submit(self, number: int) -> None:
        """Submit a central or masked study of all sites."""
        name, form = f"study-{number}", masked_toml if number % 2 else study_toml
        settings = {"spares": 0} if number % 2 else {}
        toml = form(
            name=name, sites=SITES, columns=len(SITES), components=1, minimum_cohort=20, algorithm=ALGORITHM,
            epsilon=3.0, deadline_seconds=600.0, quorum=len(SITES) - 2, **settings,
        )  # fmt: skip
        explained = await self.here.query(
            "ExplainStudy",
            pb.ExplainStudyRequest(study_toml=toml, submission=name, capabilities=OWN.to_proto()),
        )
        plan = plan_from_json(explained.plan_json)
        every = [program.capabilities for program in self.versions.values()]
        revision = min(one.revisions[ALGORITHM][-1] for one in every)
        self.planned[name] = min(one.plan_max for one in every), revision
        upgraded = sum(program is CURRENT for program in self.versions.values())
        self.counts["mixed"] += 0 < upgraded < len(SITES)
        self.counts["newest"] += self.planned[name] == NEWEST
        if (plan.version, plan.revision) != self.planned[name]:
            self.here.faults.append(f"{name} has plan version {plan.version}, revision {plan.revision}")
        until = self.here.clock(COORDINATOR) // 1000 + 5 * 86_400
        request = pb.SubmitStudyRequest(
            study_toml=toml, submission=name, authorization=signed_by_analyst(plan, expires=until).to_proto(),
            capabilities=OWN.to_proto(),
        )  # fmt: skip
        await self.here.query("SubmitStudy", request)

    async def upgrade(self, site: str) -> None:
        """Kill a site at any moment, and start it as this version after a while."""
        self.here.kill(site)
        await asyncio.sleep(2 * MINUTE)
        self.versions[site] = CURRENT
        await self.here.start(site)
        await asyncio.sleep(MINUTE)  # the coordinator knows its versions

    async def run(self, days: float) -> None:
        here, loop = self.here, asyncio.get_running_loop()
        for who in (COORDINATOR, *SITES):
            await here.start(who)
        people = loop.create_task(self._decide())
        many = round(days * STUDIES_A_DAY)
        studies = [
            loop.create_task(self._later(MINUTE + DAY * number / STUDIES_A_DAY, self.submit(number)))
            for number in range(many)
        ]
        for site in SITES:
            await asyncio.sleep(days * DAY / (len(SITES) + 1))
            await self.upgrade(site)
            if site == SITES[5]:
                here.kill(COORDINATOR)
                await asyncio.sleep(MINUTE)
                await here.start(COORDINATOR)
        await asyncio.gather(*studies, self.submit(many))  # the last one at the newest versions
        for _ in range(200):
            if "running" not in here.states().values():
                break
            await asyncio.sleep(MINUTE)
        people.cancel()
        here.look()

    async def _decide(self) -> None:
        """Agree, as the people at some sites, to all that waits; the records are not read before."""
        while True:
            await asyncio.sleep(PERSON_SECONDS)
            for store in [self.here.stores[site] for site in MANUAL if self.here.alive(site)]:
                for received in store.studies.all():
                    if received.status is ConsentStatus.PENDING:
                        person = PersonDecision(by="Eva")
                        store.accept(received.read_plan(), received, None, person=person)
                        self.counts["decided"] += 1

    @staticmethod
    async def _later(seconds: float, work: Any) -> None:
        await asyncio.sleep(seconds)
        await work

    def wrong_versions(self) -> Iterator[str]:
        """Studies without a release, and releases of another plan than was agreed."""
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
    """Let each site state its program's versions. What daemons do every second, they do every minute."""
    with (
        mock.patch.object(callers, "EVERY_SECONDS", MINUTE),
        mock.patch.object(operator_approvals, "LOOK_SECONDS", MINUTE),
        mock.patch.object(site_store, "NOTE_SECONDS", MINUTE),
        mock.patch.object(connection, "DECISION_POLL_SECONDS", MINUTE),
        mock.patch.object(site_daemon, "OWN", rehearsal),
        mock.patch.object(session_start, "negotiate_version", rehearsal.negotiate_version),
        mock.patch.object(decisions, "verify_plan", rehearsal.verify_plan),
    ):
        yield


def rehearse(days: float, seed: int, made: Path, earlier: Program) -> tuple[list[str], Counter[str]]:
    """Return the faults of an upgrade of so many days, and counts of what happened."""
    logging.getLogger("eigenveil").setLevel(logging.CRITICAL + 1)
    with memory_folder() as folder:

        async def work(loop: VirtualLoop) -> tuple[list[str], Counter[str]]:
            with world(loop, folder, made, seed, SITES, POLL_SECONDS, MANUAL) as here:
                rehearsal = Rehearsal(here, dict.fromkeys(SITES, earlier))
                with versions(rehearsal):
                    try:
                        await rehearsal.run(days)
                    except Stuck as problem:
                        here.faults.append(f"stuck: {problem}")
                result = Counter(here.states().values()) + rehearsal.counts
                here.close()
                wrong = [*here.faults, *here.network.defects, *here.witness.faults]
                return [*wrong, *wrong_sums(here), *rehearsal.wrong_versions()], result

        return play(work, seed)


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    days = max(0.5, DAYS * scale)
    with template(SITES) as made:
        faults, result = rehearse(days, 1, made, earlier_program(folder / "earlier"))
    happened = ("released", "mixed", "newest", "decided", "earlier", "current")
    faults += [f"no {what}" for what in happened if not result[what]]
    return faults, (
        f"{days:g} days, {len(SITES)} sites upgraded one after another: {result['released']} studies "
        f"released, {result['failed']} failed; {result['mixed']} planned while versions differed, "
        f"{result['newest']} at the newest; {result['decided']} decisions by people; {result['earlier']} "
        f"greetings of earlier programs, {result['current']} of this one"
    )
