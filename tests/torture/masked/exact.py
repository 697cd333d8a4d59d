"""No exact answer of a site is in the coordinator's memory, on its disk, in a log or on the wire.

Real processes run a study whose answers can be computed here. The coordinator writes its memory down after
each answer to one of its rounds, and before the release. Then all of it is searched for each site's exact
answers and for all sums of some sites or of all, with and without their shares of noise, but for what is
released. The control is the same study whose coordinator may see the numbers: there the search finds them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from unittest import mock

import numpy as np

from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.wire import query_from_proto
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Trust
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.integration.test_kills import select
from tests.torture.masked.federation import Running, a_study, followed, running
from tests.torture.masked.known import SHARE
from tests.torture.masked.process import DUMP_ROUND, DUMPS
from tests.torture.peers.markers import spying

SITES, ROUND = 3, 6  # the round of products: many large numbers that are nowhere by chance
LARGE = 2**24  # numbers beyond have eight digits at least
PLACES = ("memory", "wire", "disk", "log")


Place = tuple[int, set[str]]  # the bytes of some files, and whose answers are in them


def needles(round_query: RoundQuery, sites: Mapping[str, Site], masked: bool) -> dict[str, list[bytes]]:
    """Bytes that would betray an answer or a sum, by its owner. The released sum is not among them."""
    answers = {name: site.answer(round_query.query) for name, site in sites.items()}
    found = {}
    for count in range(1, len(sites) + 1):
        for some in combinations(sorted(sites), count):
            total = np.sum([answers[name] for name in some], axis=0, dtype=np.int64)
            for shares in (0, count) if masked else (0,):
                if shares < len(sites):
                    label = f"{'+'.join(some)} with {shares} shares"
                    found[label] = telling(frozen(total + shares * SHARE))
    return found


def telling(values: IntArray) -> list[bytes]:
    at = np.flatnonzero((np.abs(values[:-1]) > LARGE) & (np.abs(values[1:]) > LARGE))[-1]
    return [values[at : at + 2].tobytes(), str(int(values[at])).encode()]


def left(folder: Path, here: Running, plan: Plan) -> dict[str, Place]:
    sites = {name: Site(to_grid(rows, plan.study)) for name, rows in here.records.items()}
    wanted = needles(question(here, plan), sites, plan.masked)
    files = {
        "memory": folder.glob("dumps/*"), "wire": folder.glob("spy/wire-*"),
        "disk": here.layout.coordinator.rglob("*"), "log": here.layout.logs.iterdir(),
    }  # fmt: skip
    return {name: searched(some, wanted) for name, some in files.items()}


def searched(files: Iterable[Path], wanted: Mapping[str, list[bytes]]) -> Place:
    size, hits = 0, set[str]()
    for data in (file.read_bytes() for file in files if file.is_file()):
        size += len(data)
        hits |= {label for label, some in wanted.items() if any(one in data for one in some)}
    return size, hits


def question(here: Running, plan: Plan) -> RoundQuery:
    ((query,),) = select(
        here.layout.coordinator / "state.db", f"SELECT query FROM rounds WHERE (study, round) = (?, {ROUND})",
        plan.digest,
    )  # fmt: skip
    return query_from_proto(pb.Query.FromString(query))


def study_under(trust: Trust, folder: Path) -> tuple[str, dict[str, Place]]:
    """Run a study; why it failed, and what it left by the kind of place."""
    spy, dumps = folder / "spy", folder / "dumps"
    for made in (spy, dumps):
        made.mkdir(parents=True)
    changes = spying(spy) | {DUMPS: str(dumps), DUMP_ROUND: str(ROUND)}
    study = a_study(SITES, SITES, Algorithm.GAUSS_COV, trust)
    with mock.patch.dict(os.environ, changes), running(folder / "demo", study) as here:
        plan, failure, _ = asyncio.run(followed(here))
        return failure, {name: (0, set()) for name in PLACES} if failure else left(folder, here, plan)


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    failed, masked = study_under(Trust.SECURE_AGGREGATION, folder / "masked")
    failed_too, central = study_under(Trust.CENTRAL, folder / "central")
    problems = [one for one in (failed, failed_too) if one]
    problems += [f"{label} in the {name}" for name, (_, hits) in masked.items() for label in hits]
    problems += [f"the control found nothing in the {name}" for name in PLACES[:2] if not central[name][1]]
    problems += [f"no {name} was searched" for name in PLACES if not masked[name][0]]
    size = sum(size for size, _ in masked.values())
    return problems, (
        f"no answer of {SITES} sites and no sum of some in {size / 2**20:.0f} MiB of memory, disk, logs and "
        f"messages; the control found {len(central['memory'][1])} in its memory"
    )
