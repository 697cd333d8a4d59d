"""Cost of ended studies to running ones: a round, a start, a list, memory, with and without them.

`python -m benchmarks.past_studies [--studies N] [--rounds R] [--database URL --other URL]` writes N studies
of R rounds into one of two federations, by the coordinator's own writes, and runs studies in both by turns.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import dataclass

import numpy as np

from benchmarks.light_sites import FEDERATION, Shared
from benchmarks.many_sites import (
    RECORDS,
    Asked,
    Coordinator,
    Federation,
    at_work,
    coordinating,
    federation,
    periods,
    run_study,
    study_toml,
)
from benchmarks.process import kept_if_failed
from eigenveil.accounting.zcdp import Cost
from eigenveil.numerics.encoding import canonical, digest
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.estimate import no_release
from eigenveil.protocol.plan import plan_from_json
from eigenveil.protocol.query import PricedQuery, RoundQuery
from eigenveil.protocol.rounds import Release, RoundStatement
from eigenveil.protocol.wire import query_to_proto
from eigenveil.queries import Count
from eigenveil.reporting.document import release_document, signed_release
from eigenveil.reporting.result import result_of
from eigenveil.study.toml import parse_study
from eigenveil_client.connection.channel import call
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_common.storage.ledger_store import LedgerPosition, LedgerStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc
from eigenveil_server.config import Config
from eigenveil_server.pki.keys import Keys, load_keys
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.database import existing_store
from eigenveil_server.storage.release_pieces import StoredPieces
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.storage.submissions import SubmissionQuota, summary_of

SITES, COLUMNS, AT = ("site-0000", "site-0001", "site-0002"), 20, 1_700_000_000_000
PRICE, TURNS = 3, 5  # micro-rho of a past round; studies that run in each federation
QUOTA = SubmissionQuota(studies=10**9, bytes=2**50)


class Within:
    """A `Database` whose transactions are all part of one that is open already."""

    def __init__(self, database: Database, change: Connection) -> None:
        self._database = database
        self._change = change

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """The one that is open."""
        yield self._change

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """A read."""
        return self._database.rows(statement, parameters)

    def close(self) -> None:
        """Nothing of its own."""


def write_past(config: Config, studies: int, rounds: int) -> None:
    """Write `studies` that were released after `rounds` rounds each, in one transaction."""
    keys = load_keys(config.files)
    study = parse_study(study_toml(SITES, Asked(columns=COLUMNS), "past"))
    plan = json.loads(make_plan(study, federation=FEDERATION).to_json())
    with closing(existing_store(config)) as store, store.writer.transaction() as change:
        ledger = LedgerStore(Within(store.writer, change), config.budget, lambda: AT // 1000)
        writer = Writer(change=change, ledger=ledger, keys=keys)
        for number in range(studies):
            plan["study"]["name"] = plan["submission"] = f"past-{number}"
            writer.study(plan, rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Writes studies that are over into an open transaction."""

    change: Connection
    ledger: LedgerStore
    keys: Keys

    def study(self, plan: dict[str, object], rounds: int) -> None:
        """The study of `plan`, whose price is made up."""
        name, message = str(plan["submission"]), canonical(plan)
        stored = StoredStudy(
            digest=digest("plan", plan), name=name, analyst="bob", submission=name, plan_json=message,
            signature=self.keys.sign_plan(message), micro_rho=PRICE * rounds, expected_rounds=rounds,
            state=StudyState.RUNNING, failure="", submitted_at=AT, started_at=AT,
        )  # fmt: skip
        study_writes.add_study(self.change, stored, "submitted", QUOTA, summary_of(plan_from_json(message)))
        self.ledger.reserve(stored.digest, Cost(micro_rho=PRICE * rounds, atto_delta=0), gaussian=True)
        after = ""
        for number in range(rounds):
            round_query = RoundQuery(PricedQuery(query=Count(), micro_rho=PRICE), stored.digest, number)
            after = self._round(round_query, after)
        made = plan_from_json(message)
        result = result_of(made, no_release(made, RECORDS, "none"))
        document = release_document(made, result, [], rounds=[], private=False)
        release = signed_release(
            document, result, sign=self.keys.release.sign, public_key=self.keys.release_public
        )
        study_writes.end_study(
            self.change, stored.digest, StudyState.RELEASED, AT, release=StoredPieces(first=release, count=1)
        )
        self.ledger.settle(stored.digest)

    def _round(self, round_query: RoundQuery, after: str) -> str:
        study, change = round_query.plan_digest, self.change
        study_writes.open_round(change, round_query, query_to_proto(round_query).SerializeToString(), AT)
        release = Release.of(round_query, np.array([RECORDS]), 1.0, SITES)

        def write(change: Connection, tip: LedgerPosition) -> None:
            message = RoundStatement(
                plan=study, round=round_query.round, query=round_query.digest, after=after,
                release=release.digest,
                ledger=tip[0], size=tip[1],
            ).signed(self.keys.release.sign)  # fmt: skip
            macs = {site: self.keys.mac(round_query.digest) for site in SITES}
            study_writes.release_round(
                change, study, release, message, AT, attempt=0, macs=macs, absent={}, piece_key=None
            )
            event = pb.StudyEvent(
                state=pb.STUDY_STATE_RUNNING, round=round_query.round, round_state="released"
            )
            study_writes.add_event(change, study, event)

        self.ledger.charge_round(round_query, write)
        return release.digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Of one federation: seconds and CPU seconds until it serves, milliseconds of its rounds and of a list of
    its studies, and its peak memory in MiB."""

    start: float
    start_cpu: float
    rounds: list[float]
    listed: float
    peak: float


async def _by_turns(pairs: list[Federation]) -> list[list[float]]:
    rounds: list[list[float]] = [[] for _ in pairs]
    async with AsyncExitStack() as open_sites:
        for made in pairs:
            await open_sites.enter_async_context(
                at_work(made.sites, Shared(RECORDS, lambda round_query: None))
            )
        for turn in range(TURNS):
            for place, made in enumerate(pairs):
                toml = study_toml(SITES, Asked(columns=COLUMNS), f"turn-{turn}")
                found = await run_study(made.analyst, toml, f"turn-{turn}")
                rounds[place] += periods(made.config, found)
    return rounds


async def _list_ms(made: Federation) -> float:
    """Milliseconds until every study is listed."""
    async with made.analyst.channel() as channel:
        stub, begun = rpc.CoordinatorStub(channel), time.monotonic()
        after, more = b"", True
        while more:
            answer = await call(stub.ListStudies, pb.ListStudiesRequest(after=after), seconds=300)
            after, more = answer.studies[-1].plan_digest, answer.more
        return 1e3 * (time.monotonic() - begun)


@contextmanager
def _started(made: Federation) -> Iterator[tuple[float, float, Coordinator]]:
    begun = time.monotonic()
    with coordinating(made) as coordinator:
        yield time.monotonic() - begun, coordinator.cpu(), coordinator


def run(studies: int, rounds: int, databases: tuple[str, str] = ("", "")) -> tuple[Found, Found]:
    """A federation with past studies, and one without."""
    with kept_if_failed() as folder:
        made = [
            federation(folder / str(number), len(SITES), database)
            for number, database in enumerate(databases)
        ]
        write_past(made[0].config, studies, rounds)
        with _started(made[0]) as (first, cpu, one), _started(made[1]) as (second, least, other):
            times = asyncio.run(_by_turns(made))
            lists = [asyncio.run(_list_ms(each)) for each in made]
            return (
                Found(start=first, start_cpu=cpu, rounds=times[0], listed=lists[0], peak=one.peak()),
                Found(start=second, start_cpu=least, rounds=times[1], listed=lists[1], peak=other.peak()),
            )


def main() -> None:
    """Print both."""
    parser = ArgumentParser()
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--database", default="")
    parser.add_argument("--other", default="")
    wanted = parser.parse_args()
    found = run(wanted.studies, wanted.rounds, (wanted.database, wanted.other))
    for many, one in zip((wanted.studies, 0), found, strict=True):
        print(
            f"{many:6} past studies of {wanted.rounds} rounds: start {one.start:.1f} s "
            f"(CPU {one.start_cpu:.1f} s), round {statistics.median(one.rounds):.1f} ms (of "
            f"{len(one.rounds)}), list {one.listed:.0f} ms, "
            f"peak {one.peak:.0f} MiB"
        )
    slower = statistics.median(found[0].rounds) / statistics.median(found[1].rounds) - 1
    print(f"a round takes {100 * slower:+.1f} % with them")


if __name__ == "__main__":
    main()
