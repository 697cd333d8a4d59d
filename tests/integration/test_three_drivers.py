"""One session, three drivers: simulator, estimator and a real federation release the same bits."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils import check_random_state

from eigenveil import PrivatePCA, simulate
from eigenveil.accounting.budget import NoiseRule
from eigenveil.algorithms import ALGORITHMS
from eigenveil.dictionary.site_rules import ANY
from eigenveil.estimators._base import SEEDS, SITE
from eigenveil.identity import Role
from eigenveil.noise.seeded import SeededNoise
from eigenveil.numerics.encoding import FloatArray
from eigenveil.planning.choose import make_plan
from eigenveil.reporting.verify import load_release
from eigenveil.study.grid import S
from eigenveil.study.study import MIN_BATCH_RECORDS, Study
from eigenveil.study.toml import study_from_dict, study_to_toml
from eigenveil.study_authorization import release_analyst
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_client.records import records
from eigenveil_client.records.scratch_files import Scratch
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.config import EngineConfig
from eigenveil_client.site.daemon.service import SiteDaemon
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.engine.engine import LocalEngine
from eigenveil_client.site.policy import Approval, Policy
from eigenveil_client.site.state.rollback import RollbackGuard
from eigenveil_client.site.state.store import SiteStore
from eigenveil_server.admin.setup import create
from eigenveil_server.config import Config
from tests.integration.running_site import enrolled
from tests.server.rig import serving

# What the simulator calls federation, submission and analyst: then all three have one plan digest.
NAME = "simulation"
RANDOM_STATE = 11
# A federation never sums over single records, so one algorithm stays in simulations.
DRIVEN = [name.value for name in ALGORITHMS if not name.properties.single_records]

# One of each composition, by batches, by the first releases and with a mechanism of its own.
STANDARD = {
    "gauss-cov", "refined-cov", "auto", "private-oja", "dp-pca-single-pass", "em-cov", "smooth-cauchy",
}  # fmt: skip

QUICK = {*STANDARD, "subspace-exact-rank"}  # the others are slow


def some_records(algorithm: str) -> FloatArray:
    """Records of four columns within [-5, 5]; for the subspace algorithms exactly in a plane of the grid."""
    generator = np.random.default_rng(5)
    if algorithm.startswith("subspace"):
        a, b = generator.integers(-1000, 1000, (2, 250))
        return np.stack([a, b, a + b, a - b], axis=1) * (5.0 / S)
    rows = 800 if algorithm == "private-oja" else 400  # 20 for each of its parts
    return generator.normal(size=(rows, 4)) * [2.0, 1.0, 0.5, 0.2]


def fitted(algorithm: str) -> PrivatePCA:
    reference = algorithm == "subspace-reference"  # it has to know how many records there are
    estimator = PrivatePCA(
        2,
        epsilon=1.5,
        bounds=(-5, 5),
        algorithm=algorithm,
        choose="during" if algorithm == "auto" else "before",
        neighbours="replace-one" if reference else "add-remove",
        radius={"norm": 0.7} if algorithm == "analyze-gauss" else "balance",
        scaling="standard" if algorithm in STANDARD else "none",
        random_state=RANDOM_STATE,
    )
    return estimator.fit(some_records(algorithm))


def noise_seed() -> int:
    """The seed that the estimator draws from its random state."""
    return int(check_random_state(RANDOM_STATE).randint(SEEDS))


def comparable(document: dict[str, Any]) -> dict[str, Any]:
    """A document without the times and the analyst's signature, which no two runs share."""
    rounds = [{key: entry[key] for key in entry if key != "milliseconds"} for entry in document["rounds"]]
    return {**document, "rounds": rounds, "authorization": None}


def as_toml(study: dict[str, Any]) -> str:
    """A study as TOML (JSON spells strings, numbers, booleans and lists the same way)."""
    lines = [
        f"{key} = {json.dumps(value)}"
        for key, value in study.items()
        if value is not None and not isinstance(value, dict | list)
    ]
    for section in ("privacy", "records", "federation"):
        lines.append(f"[{section}]")
        lines += [f"{k} = {_value(v)}" for k, v in study[section].items() if v is not None]
    for column in study["columns"]:
        lines.append("[[columns]]")
        lines += [f"{k} = {json.dumps(v)}" for k, v in column.items() if v is not None]
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{k} = {json.dumps(v)}' for k, v in value.items())} }}"
    return json.dumps(value)


@asynccontextmanager
async def site(identity: StoredIdentity, folder: Path, study: Study) -> AsyncIterator[None]:
    """A real site daemon over a CSV file."""
    file = folder / "records.csv"
    with file.open("w", newline="") as text:
        writer = csv.writer(text)
        writer.writerow([column.name for column in study.columns])
        writer.writerows(some_records(study.algorithm.value).tolist())
    parts = make_plan(study, federation=NAME, submission=NAME).batches
    policy = Policy(
        approval=Approval.AUTO, analysts=(ANY,), minimum_records=MIN_BATCH_RECORDS * parts,
        algorithms=(study.algorithm.value,), noise=NoiseRule.ANY,
        maximum_records=min(study.max_records, 100_000),
    )  # fmt: skip
    store = SiteStore(folder / "site.db", policy.budget, RollbackGuard(folder))
    read = partial(records.stream, RecordsConfig(source=file))
    engine = LocalEngine(read, EngineConfig(), Scratch(folder=folder), policy.maximum_records)
    worker = SiteWorker(identity, policy, store, engine)
    task = asyncio.create_task(SiteDaemon(worker, lambda: identity).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        store.close()


async def federated(folder: Path, study: Study, toml: str) -> dict[str, Any]:
    """The document that the real federation releases."""
    create(
        folder / "c", federation=NAME, host="127.0.0.1", port=0, enrol_port=0, budget_epsilon=10.0,
        budget_delta=1e-6,
    )  # fmt: skip
    config = Config(federation=NAME, state=folder / "c", port=0, enrol_port=0)
    async with serving(config, noise=SeededNoise(noise_seed())) as rig:
        analyst = await enrolled(rig, folder / "analyst", NAME, Role.ANALYST)
        here = await enrolled(rig, folder / SITE, SITE)
        async with site(here, folder, study), Analyst(analyst) as caller:
            plan, _ = await caller.submit(toml, NAME)
            events = [event async for event in caller.watch(bytes.fromhex(plan.digest))]
            assert events[-1].failure == ""
            data = await caller.release(bytes.fromhex(plan.digest))
    return load_release(data).document


@pytest.mark.filterwarnings("ignore::UserWarning")  # they are in the document, which is compared
@pytest.mark.parametrize(
    "algorithm", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in DRIVEN]
)
async def test_three_drivers_release_the_same_bits(algorithm: str, tmp_path: Path) -> None:
    by_estimator = fitted(algorithm).release_
    study = study_from_dict(by_estimator["plan"]["study"])

    by_simulator = simulate(study, {SITE: some_records(algorithm)}, seed=noise_seed()).document
    by_federation = await federated(tmp_path, study, as_toml(by_estimator["plan"]["study"]))

    # Each round carries the digests of its query and of its release, so equal rounds are equal bits.
    assert comparable(by_simulator) == comparable(by_estimator)
    assert comparable(by_federation) == comparable(by_estimator)
    assert (by_estimator["authorization"], by_simulator["authorization"]) == (None, None)
    assert release_analyst(by_federation).fingerprint  # the only one of the three that an analyst signed
    assert by_federation["private"] is False
    assert not algorithm.startswith("subspace-exact") or by_federation["results"]["pca"]["declined"] is None


@pytest.mark.filterwarnings("ignore::UserWarning")
async def test_a_prior_gives_the_same_bits_in_all_three(tmp_path: Path) -> None:
    known = np.random.default_rng(6).normal(size=(60, 4)) * [2.0, 1.0, 0.5, 0.2]
    estimator = PrivatePCA(
        1, epsilon=0.3, bounds=(-5, 5), scaling="bounds", algorithm="refined-cov", random_state=RANDOM_STATE,
        prior=np.clip(known, -5, 5),
    )  # fmt: skip
    by_estimator = estimator.fit(some_records("refined-cov")).release_
    study = study_from_dict(by_estimator["plan"]["study"])
    by_simulator = simulate(study, {SITE: some_records("refined-cov")}, seed=noise_seed()).document
    by_federation = await federated(tmp_path, study, study_to_toml(study))
    assert comparable(by_simulator) == comparable(by_estimator)
    assert comparable(by_federation) == comparable(by_estimator)
    assert by_federation["results"]["pca"]["prior"]["used"]
    assert release_analyst(by_federation).fingerprint
