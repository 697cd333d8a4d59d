"""Attack of one valid certificate on disks: studies without end that a site declines, and lists of them.

An analyst whom the site `dora` does not allow submits small and wide studies as fast as they are planned, and
asks for the list of studies sixty times at once, from a process of its own at the lowest priority. `dora` is
a real daemon that states no rules, as an older one. Passed: no honest call was lost, 99 of 100 were answered
within a second; the site's disk holds no plan, and the coordinator's grew by no more than a day's quota and
the honest studies that ran meanwhile."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import grpc

from eigenveil.identity import Role
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.site.daemon.service import SiteDaemon
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.engine.engine import make_engine
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state.rollback import RollbackGuard
from eigenveil_client.site.state.store import SCHEMA as SITE_SCHEMA
from eigenveil_client.site.state.store import VERSION as SITE_VERSION
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.rpc import error_from
from eigenveil_common.storage.sqlite import SqliteDatabase
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorStub
from eigenveil_server.config import Config
from eigenveil_server.storage.database import MIGRATIONS, SCHEMA, VERSION
from tests.client.site.support import write_records
from tests.integration.running_site import config_of, enrolled
from tests.server.rig import Credentials, Rig, study_toml
from tests.support import signed_by_analyst
from tests.torture.front import denial
from tests.torture.front.besieged import LOWEST, Siege, besieged, channel_of, other_process

if TYPE_CHECKING:
    from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorAsyncStub

MEMBERS = {"eve": Role.ANALYST, **{name: denial.MEMBERS[name] for name in ("ada", *denial.SITES)}}
SITE = "dora"
LISTS = 60
SUBMISSIONS = 4  # at once
PLANNED_SECONDS = 60.0  # in which the attacker has two plans to sign, beside whatever else is asked
BURN = (0.5, denial.CALM_SECONDS)  # share of a processor, seconds
WIDE = 1900  # columns, of names as long as may be: a plan of 840 KiB
SITE_GROWTH = 2**20  # digests, counts and a row of the egress ledger for each refusal; no plan
LOG_GROWTH = 4 * 2**20  # at the coordinator beyond the quota: ledger, events, consents, indexes
HONEST = 5  # studies whose bytes are measured before; the faster the machine, the more run meanwhile


class Disks(NamedTuple):
    """Bytes on both disks, and the studies of the attacker that are stored."""

    site: int
    coordinator: int
    studies: int


def faults(before: Disks, after: Disks, quota: Config) -> list[str]:
    most = quota.max_submitted_mib_per_day * 2**20 + LOG_GROWTH
    wrong = {
        "the site's disk grew beyond counts and digests": after.site - before.site > SITE_GROWTH,
        "the coordinator's disk grew beyond a day's quota": after.coordinator - before.coordinator > most,
        "more studies than a day's quota are stored": after.studies > quota.max_submissions_per_day,
        "no study of the attacker was ever stored": not after.studies,
    }
    return [fault for fault, true in wrong.items() if true]


def flood(port: int, cached: Credentials, seconds: float) -> dict[str, int]:
    """Submit and list for so long; how many submissions were taken, or refused with which code."""
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
    small = study_toml(sites=(SITE,), epsilon=0.3)
    return asyncio.run(submit_and_list(port, cached, seconds, _wide(), small))


async def submit_and_list(
    port: int, cached: Credentials, seconds: float, wide: str, small: str
) -> dict[str, int]:
    """As `flood`, beside whatever else this process does; every eighth study is the wide one."""
    counted: Counter[str] = Counter()
    async with channel_of(port, cached) as channel:
        stub = CoordinatorStub(channel)

        plans = dict[str, Plan]()
        with suppress(TimeoutError):
            async with asyncio.timeout(PLANNED_SECONDS):
                plans = {toml: await _plan(stub, toml) for toml in (wide, small)}
        if not plans:
            return {}

        async def submit() -> None:
            toml = wide if counted.total() % 8 == 0 else small
            one = replace(plans[toml], submission=os.urandom(8).hex())
            wanted = pb.SubmitStudyRequest(
                submission=one.submission, study_toml=toml, authorization=signed_by_analyst(one).to_proto()
            )
            try:
                await stub.SubmitStudy(wanted, timeout=seconds)
                counted["taken"] += 1
            except grpc.aio.AioRpcError as problem:
                counted[error_from(problem).code.value] += 1

        async def request() -> None:
            with suppress(grpc.aio.AioRpcError):
                await stub.ListStudies(pb.ListStudiesRequest(), timeout=seconds)

        await asyncio.gather(
            denial.many(SUBMISSIONS, seconds, submit), denial.many(LISTS - SUBMISSIONS, seconds, request)
        )
    return dict(counted)


async def _plan(stub: CoordinatorAsyncStub, toml: str) -> Plan:
    """As the coordinator explains it, as soon as it is reached beside whatever else attacks it."""
    query = pb.ExplainStudyRequest(study_toml=toml, submission="one")
    while True:
        try:
            return plan_from_json((await stub.ExplainStudy(query)).plan_json)
        except grpc.aio.AioRpcError as problem:
            if problem.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        await asyncio.sleep(1.0)


def _wide() -> str:
    lines = [study_toml(columns=0, components=1, sites=(SITE,), epsilon=1.0)]
    for number in range(WIDE):
        name = f"c{number:05d}{'é' * 194}"
        lines += ["[[columns]]", f'name = "{name}"', 'unit = ""', "lower = -1.0", "upper = 1.0"]
    return "\n".join(lines)


@contextmanager
def declining(folder: Path, port: int) -> Iterator[None]:
    """The daemon of the site that allows ada alone, in a process of its own: it computes beside no calls."""
    process = multiprocessing.get_context("spawn").Process(target=decline, args=(folder, port))
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def decline(folder: Path, port: int) -> None:
    identity, site = folder / SITE, folder / f"{SITE}-site"
    site.mkdir()
    write_records(site / "records.csv", columns=("c0", "c1", "c2", "c3"))
    config = config_of(identity, approval=Approval.AUTO, analysts=("ada",))
    reached = replace(load_identity(identity), coordinator=f"127.0.0.1:{port}")
    store = SiteStore(config.state, config.policy.budget, RollbackGuard(config.identity))
    daemon = SiteDaemon(SiteWorker(reached, config.policy, store, make_engine(config)), lambda: reached)
    asyncio.run(daemon.run())


def counts(folder: Path) -> dict[str, int]:
    with closing(SqliteDatabase(folder / f"{SITE}-site" / "state.db", SITE_SCHEMA, SITE_VERSION)) as database:
        rows = database.rows("SELECT rule, SUM(plans) AS plans FROM decline_counts GROUP BY rule")
    return {row["rule"]: row["plans"] for row in rows}


def disks(siege: Siege, folder: Path) -> Disks:
    state = folder / "coordinator" / "state.db"
    with closing(SqliteDatabase(state, SCHEMA, VERSION, migrations=MIGRATIONS)) as database:
        stored = database.rows("SELECT COUNT(*) FROM studies WHERE analyst = ?", ("eve",))[0][0]
        coordinator = _size(database)
    with closing(SqliteDatabase(folder / f"{SITE}-site" / "state.db", SITE_SCHEMA, SITE_VERSION)) as database:
        return Disks(site=_size(database), coordinator=coordinator, studies=stored)


def _size(database: SqliteDatabase) -> int:
    """Of what is stored; the write-ahead log comes and goes."""
    pages, size = (database.rows(f"PRAGMA {name}")[0][0] for name in ("page_count", "page_size"))
    return int(pages * size)


async def prepared(rig: Rig, folder: Path) -> None:
    await enrolled(rig, folder / SITE, SITE)


async def bytes_of_a_study(here: denial.Federation, look: Callable[[], Disks]) -> float:
    """Return the mean of what an honest study adds to the coordinator's disk."""
    before = look()
    for _ in range(HONEST):
        await here.study()
    return (look().coordinator - before.coordinator) / HONEST


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """One flood, at its full length or shorter."""
    seconds = max(denial.LEAST_SECONDS, denial.SECONDS * scale)
    quota = Config(federation="f", state=folder)
    async with besieged(folder, MEMBERS, prepared) as siege, denial.beside(siege) as here:
        with declining(folder, siege.port):
            async with asyncio.timeout(60):  # until the daemon has its store
                while not (folder / f"{SITE}-site" / "state.db").exists():
                    await asyncio.sleep(0.1)
            await here.study()  # what is loaded once is loaded by then
            honest_bytes = await bytes_of_a_study(here, partial(disks, siege, folder))
            before, submitted = disks(siege, folder), here.submitted
            with other_process() as begin:
                attacking = begin(flood, siege.port, siege.credentials["eve"], seconds)
                honest = await here.under(attacking)
                calm = await here.under(begin(denial.burn, *BURN))
            after = disks(siege, folder)
            of_honest = round(honest_bytes * (here.submitted - submitted))
            after = after._replace(coordinator=after.coordinator - of_honest)
            found = [*faults(before, after, quota), *honest.faults("declined floods"), *siege.faults]
            declined = counts(folder)
    return found, (
        f"submissions {attacking.result()}; declined {declined}; site "
        f"+{(after.site - before.site) / 2**20:.2f} MiB, coordinator "
        f"+{(after.coordinator - before.coordinator) / 2**20:.1f} MiB and {of_honest / 2**20:.1f} of honest "
        f"studies; honest {honest} (beside a busy "
        f"process {calm})"
    )
