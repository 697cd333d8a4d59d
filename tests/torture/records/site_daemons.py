"""Damaged records under a site's whole daemon: a process with its own site.toml, asked over the wire.

Each daemon reads records of one kind. A study is asked of it for every damaged file, then one over a whole
file: every refusal is one line of its log and one word on the wire, and the last study is answered."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.study.study import Federation
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.records.isolated.test_reader import study_of
from tests.client.site.support import SITE, Coordinator, Stage, a_plan, a_stage, until, work
from tests.fuzz.hunt import resident_bytes
from tests.torture.peers.malicious import process
from tests.torture.records.damage import make_damaged, make_good, perhaps_cut

DECLINED = re.compile(r"declined study=(\w+) round=0 code=([\w-]+)")
DEFECT = re.compile(r" bug |Traceback|defect in|ended with")
BEGIN = 10**6 - 1  # other files than an asker reads; from the second on those that are made to bite


@dataclass(slots=True, kw_only=True)
class Served:
    """Outcomes of one daemon's studies, and the bytes by which it and its fork server grew at the most."""

    kind: str
    outcomes: Counter[str] = field(default_factory=Counter)
    growth: int = 0
    faults: list[str] = field(default_factory=list)


async def all_served(folder: Path, kinds: Sequence[str], files: int, at_once: int) -> list[Served]:
    attempts = asyncio.Semaphore(at_once)

    async def one(kind: str) -> Served:
        async with attempts:
            here = folder / f"of-{kind}"
            here.mkdir()
            return await Watched(a_stage(here), kind).serve(files)

    return list(await asyncio.gather(*map(one, kinds)))


class Watched:
    def __init__(self, stage: Stage, kind: str) -> None:
        self._stage = stage
        self._records = stage.folder / "here"
        self._log = stage.folder / "log"
        self._coordinator = Coordinator()
        self._plans: list[Plan] = []
        self.served = Served(kind=kind)
        _write(stage, make_good(self._records, kind))

    async def serve(self, files: int) -> Served:
        kind, served = self.served.kind, self.served
        async with self._stage.serving(self._coordinator), process(self._stage, self._log) as daemon:
            if await self._request() != "answered":
                served.faults.append(f"{kind}: a whole file is declined")
            before = _memory(daemon.pid)
            for number in range(BEGIN, BEGIN + files):
                make_damaged(self._records, kind, number)
                with perhaps_cut(self._records, number):
                    served.outcomes[await self._request()] += 1
                served.growth = max(served.growth, _memory(daemon.pid) - before)
            make_good(self._records, kind)
            if await self._request() != "answered" or daemon.returncode is not None:
                served.faults.append(f"{kind}: a whole file is not answered after {files} damaged ones")
        self._judge()
        return served

    async def _request(self) -> str:
        """The first question of a study of its own, and the end of the one before."""
        study = replace(study_of(self.served.kind), federation=Federation(sites=(SITE, "hospital-b")))
        study = replace(study, max_records=100_000)
        plan = a_plan(study, submission=f"study-{len(self._plans)}")
        response = work(rehearse(plan)[0], self._stage.signed(plan))
        for last in self._plans[-1:]:
            end = pb.StudyEnd(plan_digest=bytes.fromhex(last.digest), state=pb.STUDY_STATE_FAILED)
            response.ended.append(end)
        self._plans.append(plan)
        here = self._coordinator
        answered, declined = len(here.contributions), len(here.declines)
        here.work.append(response)
        await until(lambda: len(here.contributions) + len(here.declines) > answered + declined)
        return "declined" if len(here.declines) > declined else "answered"

    def _judge(self) -> None:
        log, found = self._log.read_text(), self.served.faults
        declines = self._coordinator.declines
        lines = Counter(study for study, _ in DECLINED.findall(log))
        if lines != Counter(one.plan_digest.hex()[:12] for one in declines):
            found.append(f"{self.served.kind}: not one line for each decline")
        if {one.reason for one in declines} - {pb.DECLINE_REASON_FAILURE}:
            found.append(f"{self.served.kind}: a decline says more than that records cannot be used")
        if DEFECT.search(log):
            found.append(f"{self.served.kind}: the log tells of a defect")


def _write(stage: Stage, message: RecordsConfig) -> None:
    """The site.toml of a site with these records, and a budget for thousands of studies."""
    assert message.source is not None
    more = {"source": message.source.relative_to(stage.folder), "table": message.table, "sql": message.sql}
    records = "".join(f'{key} = "{value}"\n' for key, value in more.items() if value)
    (stage.folder / "site.toml").write_text(
        f'name = "{SITE}"\nidentity = "identity"\nstate = "state.db"\napproval = "auto"\nanalysts = ["*"]\n'
        f"budget_epsilon = 100000.0\n[records]\n{records}"
    )


def _memory(pid: int) -> int:
    """Bytes of a daemon and of its fork server; of readers, whose memory is limited, none."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return sum(map(resident_bytes, [pid, *(int(one) for task in tasks for one in task.read_text().split())]))
