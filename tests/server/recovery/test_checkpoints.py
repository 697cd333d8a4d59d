"""[R20] A coordinator that meets a later checkpoint of its ledger stops, stays down, and charges the loss."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from eigenveil.accounting.budget import NoiseRule, PrivacyBudget
from eigenveil.accounting.checkpoint import CHECKPOINT_SIGNED, Checkpoint, checkpoint_of, verify_checkpoint
from eigenveil.accounting.ledger import Ledger, LedgerEntry
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Role
from eigenveil_common.storage.ledger_store import LedgerTotals
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.admin.doctor import coordinator_checks
from eigenveil_server.admin.status import report
from eigenveil_server.config import Config, Files
from eigenveil_server.daemon import Daemon
from eigenveil_server.pki.keys import load_keys
from eigenveil_server.recovery.accept_loss import accept_loss, cost_of_loss
from eigenveil_server.storage.database import open_store
from tests.server.rig import Client, Rig, answering, made, no_fatal, refusal, serving, study_toml
from tests.support import a_hello, refused

STUDY = study_toml()


def hello(checkpoint: pb.SignedCheckpoint | None) -> pb.HelloRequest:
    return a_hello(checkpoint=checkpoint)


async def released(rig: Rig, study: str = STUDY) -> pb.SignedCheckpoint:
    """Run a study; the checkpoint of the ledger after it."""
    sites, ada = await rig.sites(), await rig.client(Role.ANALYST, "ada")
    async with answering(sites):
        events = await ada.events(await ada.submit(study))
    assert events[-1].state == pb.STUDY_STATE_RELEASED
    found = rig.daemon.checkpoints.checkpoint_if_newer(b"")
    assert found is not None
    return found


def put_back(config: Config, copy: Path) -> None:
    for path in config.files.folder.glob("state.db*"):
        path.unlink()
    shutil.copy(copy, config.files.database)


def spent(config: Config) -> Cost:
    with closing(open_store(config.store)) as store:
        rows = store.reader.rows("SELECT micro_rho, atto_delta FROM ledger WHERE kind = 'charge'")
        return sum((Cost(micro_rho=r[0], atto_delta=int(r[1])) for r in rows), Cost(micro_rho=0))


async def behind(config: Config, study: str = STUDY) -> pb.SignedCheckpoint:
    """Run a study, put the database back to before it; the checkpoint that sites now hold."""
    async with serving(config) as rig:
        await rig.client(Role.SITE, "anna")
    early = config.files.folder / "early"
    shutil.copy(config.files.database, early)
    async with serving(config) as rig:
        later = await released(rig, study)
    put_back(config, early)
    return later


async def greet(rig: Rig, checkpoint: pb.SignedCheckpoint | None) -> Client:
    anna = await rig.client(Role.SITE, "anna")
    await anna.stub.Hello(hello(checkpoint))
    return anna


async def test_sites_are_given_the_head_with_their_work(rig: Rig, ada: Client) -> None:
    public = rig.daemon.runtime.keys.release_public
    anna = await rig.client(Role.SITE, "anna")
    await anna.stub.Hello(hello(None))
    for name in ("bert", "carl"):
        await rig.client(Role.SITE, name)
    await ada.submit(STUDY)
    found = await anna.stub.NextWork(pb.NextWorkRequest())
    checkpoint = verify_checkpoint(found.checkpoint.checkpoint_json, found.checkpoint.signature, public)
    (cost,) = rig.rows("SELECT micro_rho FROM ledger")
    assert (checkpoint.size, checkpoint.committed) == (1, Cost(micro_rho=cost["micro_rho"]))
    cached = bytes.fromhex(checkpoint.digest)
    again = await anna.stub.NextWork(pb.NextWorkRequest(checkpoint_digest=cached))
    assert again.HasField("query")
    assert not again.HasField("checkpoint")
    await anna.stub.Hello(hello(found.checkpoint))  # its own checkpoint is well known


async def test_a_later_head_stops_the_coordinator_until_the_loss_is_charged(tmp_path: Path) -> None:
    config = made(tmp_path / "c", noise=NoiseRule.GAUSSIAN)
    later = await behind(config)
    async with serving(config) as rig:
        assert "accept-loss" in str(await refusal(greet(rig, later)))
    for _ in range(2):
        with refused(Code.STORAGE, "accept-loss"):
            Daemon(config, fatal=no_fatal)
    assert "anna showed a newer checkpoint" in examined(config)
    owed = verify_checkpoint(later.checkpoint_json, later.signature, public_key(config)).committed
    accepted = accept_loss(config)
    assert accepted.charged == owed == spent(config)
    assert owed.micro_rho > 0
    assert not config.files.marker.exists()
    assert accepted.awaited == ("anna",)
    assert "anna" in examined(config)
    with refused(Code.CONFLICT, "no loss"):
        accept_loss(config)
    async with serving(config) as rig:
        anna = await greet(rig, later)  # known by now
        cached = bytes.fromhex(accepted.checkpoint.digest)
        result = await anna.stub.NextWork(pb.NextWorkRequest(checkpoint_digest=cached))
        assert (result.HasField("checkpoint"), result.ledger_diverged) == (True, True)
        assert not result.HasField("query")
    assert spent(config) == owed
    budget = report(config)["budget"]
    assert budget["exact"], "that all of it was Gaussian is not lost with the rows"
    assert 0 < budget["spent_epsilon_gaussian"] < budget["spent_epsilon"]


@pytest.mark.parametrize("study", [STUDY, STUDY.replace("1e-6", "0.0")])
async def test_what_was_lost_where_any_noise_was_admitted_is_charged_as_of_any(
    tmp_path: Path, study: str
) -> None:
    """Laplace noise, and Gaussian that was admitted where other could have been: zCDP's total holds for ever,
    also if the rule says Gaussian noise alone by then."""
    config = made(tmp_path / "c", noise=NoiseRule.ANY)

    later = await behind(config, study)
    async with serving(config) as rig:
        await refusal(greet(rig, later))
    assert not accept_loss(config).checkpoint.gaussian
    result = report(replace(config, noise=NoiseRule.GAUSSIAN))["budget"]
    assert not result["exact"]
    assert result["micro_rho"] == config.budget.mixed.micro_rho


def examined(config: Config) -> str:
    checks = coordinator_checks(config.files.folder / "coordinator.toml")
    return next(check.line() for check in checks if check.about == "checkpoints")


def public_key(config: Config) -> bytes:
    return load_keys(config.files).release_public


async def test_a_newer_database_ends_the_refusal(tmp_path: Path) -> None:
    config = made(tmp_path / "c")

    async with serving(config) as rig:
        await rig.client(Role.SITE, "anna")
    early, late = tmp_path / "early", tmp_path / "late"
    shutil.copy(config.files.database, early)
    async with serving(config) as rig:
        later = await released(rig)
    shutil.copy(config.files.database, late)
    put_back(config, early)
    async with serving(config) as rig:
        await refusal(greet(rig, later))
    assert config.files.marker.exists()
    put_back(config, late)
    async with serving(config) as rig:
        await greet(rig, later)
    assert not config.files.marker.exists()


async def test_accepting_a_loss_that_does_not_fit_the_budget_changes_nothing(tmp_path: Path) -> None:
    config = made(tmp_path / "c")

    later = await behind(config)
    async with serving(config) as rig:
        await refusal(greet(rig, later))
    low_quality = Config(federation=config.federation, state=config.state, budget_epsilon=0.01)
    with pytest.raises(RequestError, match="restore a newer backup, or raise budget_epsilon") as problem:
        accept_loss(low_quality)
    assert problem.value.code is Code.BUDGET
    with refused(Code.STORAGE, "accept-loss"):
        Daemon(config, fatal=no_fatal)


async def test_a_checkpoint_with_another_signature_stops_nothing(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        keys = rig.daemon.runtime.keys
        strange = checkpoint_of("fed", ["ab" * 32], [], gaussian=True).signed_json
        forged = pb.SignedCheckpoint(checkpoint_json=strange, signature=bytes(64))
        assert (await refusal(greet(rig, forged))).code is Code.IDENTITY
        other = pb.SignedCheckpoint(
            checkpoint_json=strange, signature=keys.release.sign(CHECKPOINT_SIGNED + strange)
        )
        problem = await refusal(greet(rig, other))
        assert isinstance(problem, PeerError)
        assert problem.code is Code.PROTOCOL
        await greet(rig, None)
    assert not Files(tmp_path / "c").marker.exists()


# ------------------------------------------------------------ how much was lost


def grown(ledger: Ledger, entries: list[LedgerEntry], random: Random, count: int) -> None:
    """Add `count` rounds of studies to a ledger."""
    for number in range(count):
        study = f"{random.getrandbits(200):064x}"
        cost = Cost(micro_rho=random.randrange(50), atto_delta=random.randrange(3))
        for step in (
            partial(ledger.reserve, study, cost),
            partial(ledger.charge, study, number, "q", cost),
            partial(ledger.settle, study),
        ):
            entry = step(at=0)
            assert entry is not None
            ledger.apply(entry)
            entries.append(entry)


def checkpoint(entries: list[LedgerEntry]) -> Checkpoint:
    """As specified: charges, and of each study that is not settled what it has left."""
    committed = Cost(micro_rho=0)
    for study in {entry.study for entry in entries}:
        of_study = [entry for entry in entries if entry.study == study]
        settled = any(entry.kind.value == "settle" for entry in of_study)
        kinds = ("charge", "attempt") if settled else ("reserve",)
        remaining = [entry for entry in of_study if entry.kind.value in kinds]
        committed += sum((entry.cost for entry in remaining), Cost(micro_rho=0))
    return checkpoint_of("fed", [entry.digest for entry in entries], [committed], gaussian=False)


def ledger_of(entries: list[LedgerEntry]) -> Ledger:
    ledger = Ledger(budget=PrivacyBudget(mixed=Cost(micro_rho=10**9, atto_delta=10**9)))
    for entry in entries:
        ledger.apply(entry)
    return ledger


@pytest.mark.parametrize("seed", range(30))
def test_what_is_charged_is_never_less_than_what_was_lost(seed: int) -> None:
    """Also when the ledger went on after it was put back, and when a second checkpoint follows."""
    random = Random(seed)
    common: list[LedgerEntry] = []
    grown(ledger_of(common), common, random, random.choice((0, 1, 20, 60)))
    lost_one, here = list(common), list(common)
    grown(ledger_of(common), lost_one, random, random.randint(1, 30))
    first = checkpoint(lost_one)
    grown(ledger_of(lost_one), lost_one, random, random.randint(1, 10))
    second = checkpoint(lost_one)
    grown(ledger_of(common), here, random, random.choice((0, 0, 5)))
    before = ledger_of(common).spent
    owed = [Cost(micro_rho=one.committed.micro_rho - before.micro_rho) for one in (first, second)]
    assert owed[0].micro_rho <= cost_of_loss(first, here, ()).micro_rho
    charged = cost_of_loss(first, here, ()).micro_rho + cost_of_loss(second, here, (first,)).micro_rho
    assert owed[1].micro_rho <= charged
    if len(here) == len(common) and len(lost_one) - len(common) <= 16:
        assert charged == owed[1].micro_rho, "of a few rows exactly what was lost"


@pytest.mark.parametrize("seed", range(10))
def test_rounds_that_no_site_has_seen_charged_are_lost_with_their_reservation(seed: int) -> None:
    """A site that answered the last round, and whose coordinator was put back before the site's next call."""
    random = Random(seed)
    common: list[LedgerEntry] = []
    grown(ledger_of(common), common, random, 3)
    there = list(common)
    ledger, study = ledger_of(there), f"{random.getrandbits(200):064x}"

    def append(entry: LedgerEntry | None) -> None:
        assert entry is not None
        ledger.apply(entry)
        there.append(entry)

    cost = Cost(micro_rho=30, atto_delta=3)
    append(ledger.reserve(study, cost, at=0))
    for round in range(random.randrange(3)):
        append(ledger.charge(study, round, "q", Cost(micro_rho=10, atto_delta=1), at=0))
    seen = checkpoint(there)
    append(ledger.charge(study, 7, "q", Cost(micro_rho=10, atto_delta=1), at=0))
    owed = ledger.spent - ledger_of(common).spent
    charged = cost_of_loss(seen, common, ())
    assert owed.fits(charged)
    assert charged.fits(cost)
    append(ledger.settle(study, at=0))
    assert cost_of_loss(checkpoint(there), common, (seen,)) == Cost(micro_rho=0), (
        "it was charged with the first"
    )


def test_after_every_row_a_checkpoint_states_what_is_spent_and_reserved() -> None:
    random, entries = Random(1), list[LedgerEntry]()
    grown(ledger_of(entries), entries, random, 4)
    ledger = ledger_of(entries)
    cost = Cost(micro_rho=30, atto_delta=3)
    for study in ("aa", "bb"):
        for step in (
            partial(ledger.reserve, study, cost),
            partial(ledger.charge, study, 0, "q", Cost(micro_rho=10, atto_delta=1)),
            partial(ledger.attempt, study, 1, "q", Cost(micro_rho=5), pool=Cost(micro_rho=5)),
            partial(ledger.settle, "aa"),
        ):
            if (entry := step(at=0)) is not None:
                ledger.apply(entry)
                entries.append(entry)
    for size in range(1, len(entries) + 1):
        totals = LedgerTotals.of(ledger_of(entries[:size]))
        assert totals.committed == checkpoint(entries[:size]).committed
    assert totals.committed == ledger.committed() != ledger.spent
