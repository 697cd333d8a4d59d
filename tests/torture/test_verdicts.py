"""Verdicts of the checks: each thing that is wrong is found, and nothing where all is well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from eigenveil.mechanisms import apply_mechanism
from eigenveil.noise.source import OsNoise
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol.rounds import Release
from eigenveil.session import Session
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil_client.demo.layout import demo_study, public_records
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from tests.client.site.masking import EVERY, PLAN
from tests.fuzz import hunts
from tests.fuzz.hunt import Kind as Inputs
from tests.fuzz.hunt import Tally, hunt
from tests.fuzz.mutations import mutate_message
from tests.fuzz.site import feed_query, query_seeds
from tests.server.rig import made
from tests.torture import __main__ as torture
from tests.torture import checks
from tests.torture.crashes import disk_errors, kills
from tests.torture.crashes.vfs_faulty import Kind
from tests.torture.front import declined_floods, denial
from tests.torture.front.besieged import Seen
from tests.torture.front.declined_floods import LOG_GROWTH, SITE_GROWTH, Disks
from tests.torture.masked import exact
from tests.torture.masked.known import SHARE, wrong_round
from tests.torture.networks import nets, networks
from tests.torture.networks.networks import FAR, Outcome
from tests.torture.peers import messages
from tests.torture.peers.planted import found, plant, write_csv, write_parquet
from tests.torture.programs import programs
from tests.torture.records import damage, damaged_records
from tests.torture.records.asker import Came, Taken
from tests.torture.records.damaged_records import LATE_SECONDS, MOST_GROWTH, Found
from tests.torture.records.site_daemons import Served

NETWORKS = {one.name: one for one in networks.BAD}
LOSSY, CUT, MASKED_CUT = (
    NETWORKS[name] for name in ("20 % loss", "partition for good", "masked partition for good")
)
GOOD = Outcome(state="released", failure="", ended_after=1.0, releases={0: "a", 1: "b"}, disturbed=3)
FAILED = replace(GOOD, state="failed", failure=f"{FAR}: did not answer", ended_after=21.0, releases={0: "a"})
WITHOUT = replace(GOOD, releases={0: "a", 1: "of two"}, without=(1,), tried=3)

CONFIG = Config(federation="f", state=Path("c"))
MOST_STUDIES = CONFIG.max_submissions_per_day
MOST_BYTES = int(CONFIG.max_submitted_mib_per_day * 2**20) + LOG_GROWTH

READ, REFUSED = Came(outcome="read"), Came(outcome="refused")
TAKEN = Taken(asker=0, server=0, seconds=(0.0,), changed=False)
COUNTS = {"Query": Counter(accepted=1, undecodable=1)}
NOWHERE, FOUND = {name: (1, set[str]()) for name in exact.PLACES}, {name: (1, {"a"}) for name in exact.PLACES}


def seen(*more: float, lost: int = 0, studies: Sequence[float] = (1.0, 1.1, 1.4)) -> Seen:
    return Seen({"greet": [*[0.01] * 200, *more]}, ["why"] * lost, list(studies))


def flooded(site: int = 0, coordinator: int = 0, studies: int = 9) -> list[str]:
    after = Disks(site=100 + site, coordinator=100 + coordinator, studies=studies)
    return declined_floods.faults(Disks(site=100, coordinator=100, studies=0), after, CONFIG)


def damaged(second: Taken = TAKEN, came: Came = REFUSED, growth: int = 0) -> list[str]:
    result = Found()
    result.count("records.csv", came)
    for _ in range(200):
        result.look(TAKEN)
        result.look(second)
    return damaged_records.verdict(result, [Served(kind="records.csv", growth=growth)])[0]


def searched(masked: Mapping[str, exact.Place], central: Mapping[str, exact.Place]) -> list[str]:
    with mock.patch.object(exact, "study_under", side_effect=[("", masked), ("", central)]):
        return exact.run(Path(), 1.0)[0]


@pytest.mark.parametrize(
    ("faults", "fault"),
    [
        *((networks.faults(outcome, GOOD, scenario), fault) for scenario, outcome, fault in (
            (LOSSY, GOOD, ""), (CUT, FAILED, ""), (MASKED_CUT, WITHOUT, ""),
            (LOSSY, replace(GOOD, wrong=("under-charge",)), "under-charge"),
            (LOSSY, replace(GOOD, releases={0: "a", 1: "x"}), "another result than undisturbed"),
            (LOSSY, replace(GOOD, releases={0: "a"}), "fewer rounds than undisturbed"),
            (LOSSY, replace(GOOD, disturbed=0), "nothing was disturbed"),
            (LOSSY, replace(GOOD, state="running for ever"), "running for ever: "),
            (LOSSY, FAILED, f"failed: {FAR}: did not answer"),
            (LOSSY, replace(GOOD, without=(1,)), f"rounds [1] were released without {FAR}"),
            (CUT, GOOD, "instead of failed"), (CUT, replace(FAILED, failure="a defect"), "instead of failed"),
            (CUT, replace(FAILED, ended_after=19.9), "before the deadline"),
            (CUT, replace(FAILED, releases={0: "x"}), "another result than undisturbed"),
            (MASKED_CUT, FAILED, f"failed: {FAR}: did not answer"),
            (MASKED_CUT, GOOD, f"rounds [] were released without {FAR}"),
            (MASKED_CUT, replace(WITHOUT, tried=2), "2 attempts at 2 rounds, of which one was cut"),
            (MASKED_CUT, replace(WITHOUT, releases={0: "x", 1: "of two"}), "another result than undisturbed"),
        )),
        *((denial.faults("x", honest, 1.0), fault) for honest, fault in (
            (seen(), ""), (seen(lost=1), "1 of 200 honest calls lost"), (seen(2.0, 2.0, 2.0), "p99"),
            (seen(studies=[1.0, 1.6, 1.7]), "undisturbed"), (seen(studies=[1.0, 1.0]), "too long"),
            (Seen(), "p99 inf"),
        )),
        (Seen(growth=2**25).faults("x", 2**25), "+32 MiB"),
        (flooded(SITE_GROWTH, MOST_BYTES, MOST_STUDIES), ""), (flooded(SITE_GROWTH + 1), "the site's disk"),
        (flooded(coordinator=MOST_BYTES + 1), "the coordinator's disk"),
        (flooded(studies=MOST_STUDIES + 1), "more studies"), (flooded(studies=0), "ever stored"),
        (damaged(), ""), (damaged(came=READ), "no file was refused"),
        (damaged(came=Came(outcome="surprise", fault="a.csv: KeyError")), "KeyError"),
        (damaged(growth=MOST_GROWTH + 1), "memory grew"),
        *((damaged(replace(TAKEN, **change)), fault) for change, fault in (
            ({"asker": MOST_GROWTH + 1}, "memory grew"), ({"server": MOST_GROWTH + 1}, "memory grew"),
            ({"seconds": (LATE_SECONDS,)}, "answers took"), ({"changed": True}, "an answer changed"),
        )),
        (messages.verdict([Tally(outcomes=COUNTS)])[0], ""),
        (messages.verdict([Tally(outcomes=COUNTS, growth=messages.most_growth(2))])[0], "memory grew"),
        (messages.verdict([Tally(outcomes={"Query": Counter(undecodable=2)})])[0], "nothing was accepted"),
        (hunts.verdict([Tally(outcomes={"plan": Counter(plan=hunts.ENOUGH)})])[1], "plan: nothing was"),
        (programs.verdict(1, [], Counter())[0], "no deaths"),
        (searched(NOWHERE, FOUND), ""), (searched(FOUND, FOUND), "a in the memory"),
        (searched(NOWHERE, NOWHERE), "the control found nothing in the memory"),
        (searched(dict.fromkeys(exact.PLACES, (0, set())), FOUND), "no memory was searched"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(faults: list[str], fault: str) -> None:
    assert any(fault in one for one in faults) if fault else faults == []


@pytest.mark.parametrize(("present", "shares"), [(EVERY, 4), (EVERY, 3), (EVERY, 5), ((*EVERY, EVERY[0]), 4)])
def test_a_sum_with_a_share_too_few_or_too_many_or_an_answer_twice_is_found(
    present: tuple[str, ...], shares: int
) -> None:
    rows = {name: np.random.default_rng(seed).uniform(0, 10, (60, 3)) for seed, name in enumerate(EVERY)}
    sites, session, rounds = (
        {name: Site(to_grid(rows[name], PLAN.study)) for name in EVERY},
        Session(PLAN),
        [],
    )
    while (asked := session.pending) is not None:
        total = np.sum([sites[name].answer(asked.query) for name in present], axis=0, dtype=np.int64)
        sigma = apply_mechanism(asked.priced, frozen(total), PLAN.study, OsNoise(), EVERY).sigma
        release = Release.of(asked, frozen(total + shares * SHARE), sigma, EVERY)
        rounds.append({"round": asked.round, "present": list(EVERY), "release": release.digest})
        session.feed(release)
    wrong = wrong_round(PLAN, {"rounds": rounds}, rows)
    assert wrong == "" if (present, shares) == (EVERY, 4) else "round 0 is not the sum" in wrong


def test_a_round_or_release_that_is_not_on_the_disk_is_found(tmp_path: Path) -> None:
    published = disk_errors.Published(sealed={("a" * 64, 0)}, bundles={"a" * 64: b"release"})
    assert published.lost(made(tmp_path)) == [
        "round 0 was published and is not charged",
        "round 0 was published and is not sealed",
        "a release that was handed out is not there",
    ]


async def test_a_decoder_that_fails_or_retains_its_messages_is_found(tmp_path: Path) -> None:
    stored: list[bytes] = []

    async def careless(data: bytes) -> None:
        await feed_query(data)
        stored.append(b"x" * 100_000)
        {"gram": 1}[str(pb.Query.FromString(data).WhichOneof("kind"))]

    kind = Inputs(seeds=query_seeds(), mutate=mutate_message, feed=careless)
    tally = await hunt({"Query": kind}, 400, 1, tmp_path)
    assert {one.partition("(")[0] for one in tally.finds.values()} == {"KeyError"}
    assert {file.name for file in tmp_path.iterdir()} == set(tally.finds)
    assert "memory grew" in (wrong := messages.verdict([tally])[0])
    assert len(wrong) == 1 + len(tally.finds)


def test_every_marker_is_in_both_kinds_of_records(tmp_path: Path) -> None:
    """Else that it is nowhere else would say nothing."""
    planted = plant(demo_study(2, Algorithm.GAUSS_COV, 2, 0.5), public_records().values)
    write_csv(tmp_path / "a.csv", planted, planted.rows)
    write_parquet(tmp_path / "a.parquet", planted, planted.rows)
    assert len({one.text for one, _ in found(planted.markers, [tmp_path / "a.csv"])}) == 200
    assert len(found(planted.markers, [tmp_path / "a.parquet"])) > 100


def test_the_full_scale_is_what_is_promised() -> None:
    due = [kill for one in kills.plan(kills.EACH, kills.RARE, 1) for some in one.values() for kill in some]
    assert len(due) >= 200
    assert len(set(kills.CORE) & {kill.name for kill in due}) >= 25
    chosen = {(one.at, one.kind is Kind.SYNC) for one in disk_errors.planned(1.0) if one.who == "coordinator"}
    assert chosen == {(at, synced) for at in range(1, 151) for synced in (False, True)}
    kinds = damage.kinds()
    numbers = Counter(kind for kind, _ in damaged_records.order(damaged_records.FEWEST * len(kinds)))
    assert set(numbers) == set(kinds)
    assert all(numbers[kind] >= len(bites) for kind, bites in damage.BITES.items() if kind != "records.zarr")


def test_a_check_that_ends_in_an_error_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(checks.CHECKS, "nowhere", checks.Check("crashes", 0, "nowhere"))
    line, passed, _ = checks.check("nowhere", 1.0)
    assert (passed, "FAIL" in line, "ModuleNotFoundError" in line) == (False, True, True)


def test_a_machine_without_namespaces_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refused = nets.NotPermittedError("Operation not permitted")
    monkeypatch.setattr(nets, "sh", mock.Mock(side_effect=refused))
    assert "Operation not permitted" in networks.run(tmp_path, 1.0)[0][0]


def test_no_check_begins_on_a_machine_that_lacks_something(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["torture"])
    monkeypatch.setattr("shutil.which", lambda name: None if name == "nft" else f"/bin/{name}")
    monkeypatch.setattr(torture, "run", mock.Mock(side_effect=AssertionError("a check began")))
    assert torture.main() == torture.UNFIT
    assert "networks needs the program nft" in capsys.readouterr().err
