"""Controls of the checks: a fault is planted, and the check must find it."""

from __future__ import annotations

import math
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from cryptography import x509
from hypothesis import Phase

from eigenveil.accounting.zcdp import NO_COST
from eigenveil.errors import InternalError
from eigenveil.identity import Identity, Role, parse_identity
from eigenveil.noise.source import NoiseSpec, OsNoise
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.plan import plan_from_json
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import SignedRound
from eigenveil.secure_aggregation.masking import Attempt, SignedAttempt
from eigenveil_client.connection import tls
from eigenveil_client.site.daemon import decisions
from eigenveil_client.site.daemon.answers import MaskedReplies
from eigenveil_client.site.daemon.round_checks import PeerSecrets, SessionReplica
from eigenveil_client.site.policy import Policy
from eigenveil_client.site.state.outgoing import AnsweredRounds, Outgoing
from eigenveil_common.storage.database import VersionedDatabase
from eigenveil_common.storage.ledger_store import LedgerStore, PositionedWrite
from eigenveil_server import process
from eigenveil_server.pki.authority import fingerprint
from eigenveil_server.rounds.round import Round, Run
from eigenveil_server.rpc import interceptor
from tests.client.site.support import a_stage
from tests.server.rig import made, serving
from tests.torture.crashes import checkpoints, disk_errors, kills
from tests.torture.crashes.armed import Command, Kill
from tests.torture.crashes.charges import spend
from tests.torture.crashes.disk_errors import Choice
from tests.torture.crashes.forked import COORDINATOR, OPERATOR, SITES, Federation
from tests.torture.crashes.kills import NEWCOMER, federation
from tests.torture.crashes.power import MODES, judge_site
from tests.torture.crashes.vfs_faulty import Kind
from tests.torture.front import besieged, exhaustion
from tests.torture.masked import attacks, scene, sets
from tests.torture.masked.walk import walk
from tests.torture.peers import certificates, malicious
from tests.torture.peers.calls import CERTIFIED, DENIED, counted, examine, methods
from tests.torture.peers.test_malicious import here
from tests.torture.programs import programs
from tests.torture.programs.operations import LONGEST, Op, drawn, template
from tests.torture.programs.world import World

SLOW = (pytest.mark.slow,)
LATE = 0.05  # seconds after which a planted coordinator charges
UNLIMITED = "tests.torture.front.unlimited"


def nothing(*_: object) -> None:
    """A check that is not made."""


# Faults of the commands of forked processes, which they build in themselves.
def publish_before_charging() -> None:
    """The coordinator seals a round, publishes it and goes on to the next, and charges it a little later."""
    honest = LedgerStore.charge_round
    if sys.argv[0] != "eigenveil-coordinator":
        return

    def charge(self: LedgerStore, round_query: RoundQuery, also: PositionedWrite) -> None:
        with self._database.transaction() as change:
            also(change, self.ledger_position)
        threading.Timer(LATE, late, (self, round_query)).start()

    def late(ledger: LedgerStore, round_query: RoundQuery) -> None:
        with suppress(Exception):  # the study may have been settled
            honest(ledger, round_query, lambda change, ledger_position: None)

    LedgerStore.charge_round = charge  # type: ignore[method-assign]


def take_a_failed_commit_for_good() -> None:
    honest = VersionedDatabase._commit

    def commit(self: VersionedDatabase) -> None:
        with suppress(InternalError):
            honest(self)
        self._in_doubt = None

    VersionedDatabase._commit = commit  # type: ignore[method-assign]


def go_on() -> None:
    """The coordinator logs that it ends, and does not."""
    vars(process).update(os=SimpleNamespace(_exit=lambda code: None))


def end_as_told() -> None:
    vars(process).update(os=SimpleNamespace(_exit=lambda code: os._exit(0)))


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_kills_find_a_coordinator_that_publishes_before_it_charges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kills, "Federation", partial(Federation, planted=publish_before_charging))
    due = [Kill(name="round-sealed", passage=passage) for passage in (1, 2, 3)]
    toll = await federation(tmp_path, {COORDINATOR: due, SITES[0]: [], NEWCOMER: [], OPERATOR: []})
    assert any(fault.startswith("under-charge: the coordinator") for fault in toll.faults), toll.faults


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "planted", "fault"),
    [
        (Choice("coordinator", Kind.SYNC, 4), go_on, "the process went on"),
        (Choice("coordinator", Kind.FULL, 5), end_as_told, "exit code 0, fault met"),
        (Choice("site", Kind.SYNC, 5), take_a_failed_commit_for_good,
         "an answer to round 0 left and is not written down"),
    ],
)  # fmt: skip
async def test_disk_errors_find_a_process_that_ignores_them(
    choice: Choice,
    planted: Callable[[], object],
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(disk_errors, "AFTER_SECONDS", 1.0)
    monkeypatch.setattr(disk_errors, "Command", partial(Command, planted=planted))
    where = f"{choice.who}, {choice.kind.name} {choice.at}"
    assert await disk_errors.faults(tmp_path, [choice]) == [f"{where}: {fault}"]


@pytest.mark.slow
async def test_checkpoints_find_a_restored_coordinator_that_sites_let_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sites saw nothing before it was put back."""
    monkeypatch.setattr(checkpoints, "END_SECONDS", 4.0)
    found = Federation(tmp_path, renews=False)
    try:
        await found.set_up()
        source = await checkpoints.back_up(found, "backup")
        await checkpoints.put_back_by_hand(found, source)
        for name in SITES:
            found.start(name)
        with pytest.raises(TimeoutError):
            await checkpoints.refuses(found)
        assert found.processes[COORDINATOR].is_alive()
    finally:
        found.stop()


def test_charges_find_a_decision_outside_the_transaction(tmp_path: Path) -> None:
    assert spend("exact", tmp_path / "exact.db", 10, 60) == (60, 60)
    result, stored = spend("careless", tmp_path / "careless.db", 20, 20)
    assert result == stored > 20


def test_power_cuts_find_an_answer_that_leaves_before_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outgoing, "masked", lambda *_: None)
    good, figures = judge_site(MODES[0], 0.0)
    assert not good, figures


# The front door.
@pytest.mark.parametrize(
    ("limit", "attack", "fault"),
    [
        ("grpc.compression_enabled_algorithms_bitset", "compression", "NOT HELD"),
        pytest.param("handshakes", "idle sockets", "still there", marks=SLOW),
    ],
)
async def test_exhaustion_finds_a_coordinator_without_a_limit(
    limit: str, attack: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exhaustion, "ATTACKS", {attack: exhaustion.ATTACKS[attack]})
    monkeypatch.setattr(exhaustion, "besieged", partial(besieged.besieged, command=(UNLIMITED, limit)))
    found, _ = await exhaustion.run(tmp_path, 0.05)
    assert any(fault in one for one in found), found


# Peers.
def careless(pem: bytes) -> tuple[Identity, str, float, float]:
    """A gate that looks at the first URI only."""
    leaf = x509.load_pem_x509_certificate(pem)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return parse_identity(uris[0]), fingerprint(leaf), 0.0, math.inf


FLAWS = ("two URIs", "for both", "for nothing stated", "two subjects", "an authority")
SERVERS = ("no URI", "two URIs", "another federation", "a site", "a wildcard", "for nothing stated")


async def test_certificates_find_a_careless_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = certificates.bad_shapes()
    assert len(shapes) >= 24
    monkeypatch.setattr(certificates, "bad_shapes", lambda: {flaw: shapes[flaw] for flaw in FLAWS})
    monkeypatch.setattr(interceptor, "_read", careless)
    report = certificates.Report()
    with counted() as entries:
        async with serving(made(tmp_path / "c")) as rig:
            await certificates.try_clients(rig, entries, report)
    missed = [flaw for flaw in FLAWS if f"client certificate: {flaw}: None" not in report.faults]
    assert missed == [], report.faults


async def test_certificates_find_a_careless_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "check_coordinator", nothing)
    report = certificates.Report()
    async with serving(made(tmp_path / "c")) as rig:
        await certificates.try_servers(rig.daemon.runtime.keys.authority, report)
    missed = [flaw for flaw in SERVERS if f"server certificate: {flaw}: None" not in report.faults]
    assert missed == [], report.faults


@pytest.mark.parametrize(
    ("roles", "fault"),
    [
        (dict.fromkeys(interceptor.ROLES, frozenset(Role)), "SubmitStudy by site"),
        pytest.param({name: roles for name, roles in interceptor.ROLES.items() if name != "ListStudies"},
                     "ListStudies by operator: identity", marks=SLOW),
    ],
    ids=["too many", "too few"],
)  # fmt: skip
async def test_calls_find_a_gate_that_lets_in(
    roles: Mapping[str, frozenset[Role]], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interceptor, "ROLES", roles)
    table = await examine(tmp_path / "c")
    assert table.cells == (len(CERTIFIED) + len(DENIED) + 2) * len(methods())
    assert any(one.startswith(fault) for one in table.faults), table.faults


class Gone(NamedTuple):
    """A check of a site, and what stands in its place."""

    owner: object
    name: str
    instead: Callable[..., object] = nothing


def believed(_: object, signed: SignedRound, keys: object) -> object:
    return SignedRound(signed_json=signed.signed_json, signature=signed.signature).read()


SECOND_LOCK = Gone(AnsweredRounds, "check_order")


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("presence of one exact record", [Gone(SessionReplica, "expect"), SECOND_LOCK]),
        ("one micro-rho less", [Gone(SessionReplica, "expect"), SECOND_LOCK]),
        ("round out of order", [Gone(SessionReplica, "expect"), SECOND_LOCK]),
        ("a release that a stranger signed", [Gone(SessionReplica, "_verify", believed)]),
        ("a ledger that shrank", [Gone(SessionReplica, "_check_ledger")]),
        ("cohort that probes the site", [Gone(Policy, "require")]),
        ("wrong plan signature",
         [Gone(decisions, "verify_plan", lambda plan_json, *_: plan_from_json(plan_json))]),
    ],
)  # fmt: skip
async def test_malicious_finds_a_site_without_that_check(
    name: str, gone: list[Gone], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in gone:
        monkeypatch.setattr(*one)
    (attack,) = (one for one in malicious.ATTACKS if one.name == name)
    stage = a_stage(tmp_path, approval=attack.approval)
    outcome = await malicious.assault(stage, attack, here, tmp_path / "log")
    assert "3 contributions left, 3 were asked honestly" in outcome.faults


# Masked studies.
def no_noise(noise: OsNoise, spec: NoiseSpec) -> IntArray:
    return np.zeros(spec.length, dtype=np.int64)


LEFT = re.compile(r"(\d+) answers left, (\d+) were due, or for other attempts")


async def attacked(folder: Path, *names: str) -> list[sets.Outcome]:
    (folder / "log").touch()
    chosen = [one for one in attacks.ATTACKS if one.name in names]
    assert len(chosen) == len(names)
    return await sets.Assault(peers=scene.acquainted(folder), log=folder / "log").all(chosen, here)


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("below the quorum", Gone(PeerSecrets, "_check_set")),
        ("numbers count down", Gone(MaskedReplies, "_previous_answer")),
        ("an attempt at another round", Gone(Attempt, "is_of", lambda *_: True)),
        ("signed by another federation", Gone(SignedAttempt, "check", lambda signed, _: signed.read())),
    ],
)
async def test_sets_find_a_site_without_that_check(
    name: str, gone: Gone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*gone)
    for seconds in (1.0, 4.0, 16.0):  # a busy machine may not have answered so soon
        monkeypatch.setattr(sets, "ATTACK_SECONDS", seconds)
        (folder := tmp_path / str(seconds)).mkdir()
        found, _ = sets.verdict(await attacked(folder, name))
        if any(int(left) >= int(due) for left, due in LEFT.findall(" ".join(found))):
            return
    raise AssertionError(f"no answer left that was not due: {found}")


async def test_sets_find_a_site_that_leaves_its_share_of_the_noise_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OsNoise, "draw", no_noise)
    names = ("all attempts, each with another set", "a coordinator from an old copy")
    found, _ = sets.verdict(await attacked(tmp_path, *names))
    assert "have 0.00 of the variance" in " ".join(found)


@pytest.mark.parametrize(
    ("gone", "walks", "steps"),
    [
        (Gone(AnsweredRounds, "cost", lambda *_: NO_COST), 20, 20),
        pytest.param(Gone(PeerSecrets, "_check_set"), 20, 20, marks=SLOW),
        pytest.param(Gone(SessionReplica, "expect"), 80, 20, marks=SLOW),
        # A pass is paid once, however often its batches are tried.
        pytest.param(Gone(AnsweredRounds, "_next_attempt", lambda *_: 1), 80, 30, marks=SLOW),
    ],
)
def test_walk_finds_a_site_with_a_fault(
    gone: Gone, walks: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*gone)
    with pytest.raises(AssertionError):
        walk(walks, steps, (Phase.generate,))


# Random programs.
ADD_ANSWER = Round.add_answer


async def added_twice(self: Round, site: str, mac: bytes, values: IntArray, run: Run) -> bool:
    """An answer that comes again is added again."""
    repeated = await ADD_ANSWER(self, site, mac, values, run)
    if repeated:
        self._total.add(site, values)
    return repeated


@pytest.mark.slow
def test_programs_find_store_and_shrink_an_answer_that_is_added_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with template() as members:
        monkeypatch.setattr(Round, "add_answer", added_twice)
        long = (seed for seed in range(50, 300) if len(drawn(seed)) >= LONGEST // 2)
        seed = next(seed for seed in long if programs.faults_of(drawn(seed), seed, members)[0])
        small = programs.shrunk(drawn(seed), seed, members)
        faults = programs.faults_of(small, seed, members)[0]
        assert any("is not the sum of" in fault for fault in faults), faults
        assert 4 * len(small) <= len(drawn(seed))
        path = programs.store(small, seed, faults, tmp_path)
        assert programs.stored_program(path) == (small, seed)
        monkeypatch.undo()
        assert programs.faults_of(small, seed, members)[0] == []


def test_programs_find_a_study_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    study = '{"algorithm": "gauss-cov", "quorum": 3, "deadline_seconds": 500.0}'
    monkeypatch.setattr(World, "_start_site", nothing)
    with template() as members:
        faults = programs.faults_of((Op(kind="submit", name=study),), 1, members)[0]
    assert any("no end within 60 s" in fault for fault in faults), faults
