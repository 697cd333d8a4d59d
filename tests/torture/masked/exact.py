"""No exact answer of a site is in the coordinator's memory, on its disk, in a log or on the wire.

Real processes run a study whose answers can be computed here. The coordinator writes its memory down after
each answer to one of its rounds, and before the release. Then all of it is searched for each site's exact
answers and for all sums of some sites or of all, with and without their shares of noise, but for what is
released. The control is the same study whose coordinator may see the numbers: there the search finds them.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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
from tests.torture.peers.markers import SPY

SITES, ROUND = 3, 6  # the round of products: many large numbers that are nowhere by chance
LOUD = 2**24  # numbers beyond have eight digits at least
PLACES = ("memory", "wire", "disk", "log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Some files: how many bytes they have, and whose answers are in them."""

    size: int
    hits: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one study left behind, by the kind of place; or why it failed."""

    failure: str = ""
    places: Mapping[str, Place]

    def seen(self, name: str, *, size: bool = False) -> bool:
        """Whether something was found there; or looked at."""
        place = self.places.get(name)
        return place is not None and bool(place.size if size else place.hits)


@contextmanager
def watched(spy: Path, dumps: Path) -> Iterator[None]:
    """Every process that is started meanwhile writes its messages down, and a coordinator its memory."""
    for folder in (spy, dumps):
        folder.mkdir(parents=True)
    path = os.pathsep.join([str(SPY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    message = {"EIGENVEIL_SPY": str(spy), DUMPS: str(dumps), DUMP_ROUND: str(ROUND), "PYTHONPATH": path}
    with mock.patch.dict(os.environ, message):
        yield


def needles(round_query: RoundQuery, sites: Mapping[str, Site], masked: bool) -> dict[str, list[bytes]]:
    """What would betray an answer or a sum, by whose it is. The released sum is not among them."""
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
    """Two neighbouring numbers as the machine holds them, and one as text."""
    at = np.flatnonzero((np.abs(values[:-1]) > LOUD) & (np.abs(values[1:]) > LOUD))[-1]
    return [values[at : at + 2].tobytes(), str(int(values[at])).encode()]


def left(folder: Path, here: Running, plan: Plan) -> Found:
    sites = {name: Site(to_grid(rows, plan.study)) for name, rows in here.records.items()}
    wanted = needles(question(here, plan), sites, plan.masked)
    files = {
        "memory": folder.glob("dumps/*"), "wire": folder.glob("spy/wire-*"),
        "disk": here.layout.coordinator.rglob("*"), "log": here.layout.logs.iterdir(),
    }  # fmt: skip
    return Found(places={name: searched(some, wanted) for name, some in files.items()})


def searched(files: Iterable[Path], wanted: Mapping[str, list[bytes]]) -> Place:
    size, hits = 0, set()
    for data in (file.read_bytes() for file in files if file.is_file()):
        size += len(data)
        hits |= {label for label, some in wanted.items() if any(one in data for one in some)}
    return Place(size=size, hits=frozenset(hits))


def question(here: Running, plan: Plan) -> RoundQuery:
    """What was asked in the round that is looked at."""
    ((query,),) = select(
        here.layout.coordinator / "state.db", f"SELECT query FROM rounds WHERE (study, round) = (?, {ROUND})",
        plan.digest,
    )  # fmt: skip
    return query_from_proto(pb.Query.FromString(query))


def study_under(trust: Trust, folder: Path) -> Found:
    """Run a study, and search what it left."""
    with watched(folder / "spy", folder / "dumps"):
        study = a_study(SITES, SITES, Algorithm.GAUSS_COV, trust)
        with running(folder / "demo", study) as here:
            plan, failure, _ = asyncio.run(followed(here))
            return Found(failure=failure, places={}) if failure else left(folder, here, plan)


def run(scale: float) -> tuple[list[str], str]:
    del scale
    with tempfile.TemporaryDirectory(prefix="eigenveil-exact-") as root:
        masked = study_under(Trust.SECURE_AGGREGATION, Path(root) / "masked")
        central = study_under(Trust.CENTRAL, Path(root) / "central")
    return verdict(masked, central)


def verdict(masked: Found, central: Found) -> tuple[list[str], str]:
    problems = [one.failure for one in (masked, central) if one.failure]
    problems += [f"{label} in the {name}" for name, place in masked.places.items() for label in place.hits]
    for name in ("memory", "wire"):
        problems += [] if central.seen(name) else [f"the control found nothing in the {name}"]
    problems += [f"no {name} was searched" for name in PLACES if not masked.seen(name, size=True)]
    size = sum(place.size for place in masked.places.values())
    return problems, (
        f"no answer of {SITES} sites and no sum of some in {size / 2**20:.0f} MiB of memory, disk, logs and "
        f"messages; the control found {len(central.places['memory'].hits)} in its memory"
        if not problems
        else ""
    )
