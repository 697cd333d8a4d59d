"""Partition, 20 % loss, doubled packets, 64 kbit/s, 300 ms delay, resets every 10 s; real processes in
network namespaces. Each network is met by a central study and by a masked one.

Passed: every study completes or fails at its deadline; a masked one that loses a site completes without it.
A completed one has the releases of the undisturbed run, digest by digest (the coordinator's noise is seeded
for that, and the sites' shares are known), and masked sums are those of the sites that they name. The books
are as `tests.torture.model` wants them: every release is charged in full, by the coordinator and by every
site in it, and every attempt has one set. Every disturbance is shown to have happened."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from eigenveil.protocol.plan import plan_from_json
from eigenveil.reporting.verify import load_release
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Study, Trust
from eigenveil.study.toml import study_to_toml
from eigenveil_client.demo.federation import DemoFederation
from eigenveil_client.demo.layout import demo_study, open_demo_folder, public_records, write_records
from eigenveil_client.demo.processes import Processes
from tests.torture.masked.known import wrong_round
from tests.torture.model import Witness, read
from tests.torture.networks.nets import COORDINATOR, NotPermittedError, Running, probe, running

SITES = ("hospital-1", "hospital-2", "hospital-3")
FAR = SITES[-1]  # the site whose line is spoiled
DEADLINE, SHORT_DEADLINE = 40.0, 20.0
END_SECONDS = 150.0  # after which a study that has not ended never will
SERVER = "tests.torture.networks.seeded_coordinator"
LINE_PORT = 7450
MASKED = "masked "  # before the name of a study and of its scenario
AT_ONCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """State of a study in the databases at its end. `wrong` is what is wrong with the books and the sums;
    `without` are the rounds of a masked study that were released without the far site."""

    state: str
    failure: str
    ended_after: float  # seconds from the opening of the last round
    releases: Mapping[int, str] = field(default_factory=dict)
    without: tuple[int, ...] = ()
    tried: int = 0  # attempts at masked rounds
    wrong: tuple[str, ...] = ()
    disturbed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One bad network. `spoil` comes before the study is submitted; `meddle` is done over and over
    until the study ends, and says how often the disturbance has shown itself so far. `loses`: the far site,
    so that a central study fails and a masked one goes on without it."""

    name: str
    study: str
    spoil: Callable[[Running, int], None]
    meddle: Callable[[Running, float], int]
    loses: bool = False

    @property
    def masked(self) -> bool:
        return self.study.startswith(MASKED)


def _cut(here: Running, port: int) -> None:
    here.net.spoil(FAR, "counter drop")


def _delay(seconds: float, here: Running, port: int) -> None:
    words = (str(LINE_PORT), COORDINATOR, str(port), str(seconds))
    here.message("line", here.start("line", FAR, "tests.torture.networks.slow_line", *words))
    path = here.folder / "sites" / FAR / "identity" / "identity.json"
    path.write_text(path.read_text().replace(f"{COORDINATOR}:{port}", f"localhost:{LINE_PORT}"))


def _heal_after(seconds: float, here: Running, elapsed: float) -> int:
    healed = here.folder / "healed"
    if elapsed > seconds and not healed.exists():
        healed.write_text(str(here.net.heal(FAR)))
    return int(healed.read_text()) if healed.exists() else 0


def _cut_midway(here: Running, elapsed: float) -> int:
    cut = here.folder / "cut"
    if not cut.exists():
        ((released,),) = _rows(here.folder / "coordinator" / "state.db", "SELECT COUNT(*) FROM releases")
        if int(str(released)) >= 5:
            here.net.spoil(FAR, "counter drop")
            cut.touch()
    return here.net.hit(FAR)


def _reset(every: float, here: Running, elapsed: float) -> int:
    """For one second in ten every packet of the line is answered by a reset."""
    total = here.folder / "resets"
    seen = int(total.read_text()) if total.exists() else 0
    during = elapsed % every > every - 1.0
    marker = here.folder / "resetting"
    if during and not marker.exists():
        here.net.spoil(FAR, "meta l4proto tcp counter reject with tcp reset")
        marker.touch()
    elif not during and marker.exists():
        seen += here.net.heal(FAR)
        total.write_text(str(seen))
        marker.unlink()
    return seen


UNDISTURBED = tuple(
    Scenario(name=f"undisturbed {kind}", study=kind, spoil=lambda here, _: None, meddle=lambda *_: 1)
    for kind in ("short", "long", "doomed", "masked short", "masked long", "masked doomed")
)
MET = (
    Scenario(name="partition for 8 s", study="short", spoil=_cut, meddle=partial(_heal_after, 8.0)),
    Scenario(name="partition for good", study="doomed", spoil=partial(_delay, 0.05), meddle=_cut_midway,
             loses=True),
    Scenario(name="20 % loss", study="short", meddle=lambda here, _: here.net.hit(FAR),
             spoil=lambda here, _: here.net.spoil(FAR, "numgen random mod 100 < 20 counter drop")),
    Scenario(name="doubled packets", study="short", spoil=lambda here, _: here.net.double(FAR),
             meddle=lambda here, _: here.net.hit(FAR)),
    Scenario(name="64 kbit/s", study="long", spoil=lambda here, _: here.net.slow(FAR, "64kbit"),
             meddle=lambda here, _: here.net.queued(FAR)),
    Scenario(name="300 ms delay", study="short", spoil=partial(_delay, 0.3),
             meddle=lambda here, _: int(here.jobs["line"].poll() is None)),
    Scenario(name="resets every 10 s", study="long", spoil=partial(_delay, 0.15),
             meddle=partial(_reset, 10.0)),
)  # fmt: skip
BAD = (*MET, *(replace(one, name=f"{MASKED}{one.name}", study=f"{MASKED}{one.study}") for one in MET))
FEW = ("partition for good", "20 % loss", "300 ms delay", "masked partition for good", "masked 20 % loss")


def faults(outcome: Outcome, honest: Outcome | None, scenario: Scenario) -> list[str]:
    """Faults of the end of a study, compared with the undisturbed run of the same study."""
    found, left = [*outcome.wrong], set(outcome.without)
    if scenario.loses and not scenario.masked:
        if outcome.state != "failed" or FAR not in outcome.failure:
            found.append(f"{outcome.state} ({outcome.failure}) instead of failed for {FAR}")
        if outcome.ended_after < SHORT_DEADLINE:
            found.append(f"ended {outcome.ended_after:.1f} s after its round opened, before the deadline")
    elif outcome.state != "released":
        found.append(f"{outcome.state}: {outcome.failure}")
    if scenario.loses and scenario.masked and outcome.tried <= len(outcome.releases):
        found.append(f"{outcome.tried} attempts at {len(outcome.releases)} rounds, of which one was cut")
    if bool(left) is not (scenario.loses and scenario.masked):
        found.append(f"rounds {sorted(left)} were released without {FAR}")
    if honest is not None:
        same = outcome.releases.keys() - left
        if any(outcome.releases[number] != honest.releases.get(number) for number in same):
            found.append("another result than undisturbed")
        if outcome.state == "released" and len(outcome.releases) != len(honest.releases):
            found.append("fewer rounds than undisturbed")
    if not outcome.disturbed:
        found.append("nothing was disturbed")
    return found


def _rows(database: Path, statement: str, *values: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        return connection.execute(statement, values).fetchall()


def read_outcome(folder: Path, study: str, disturbed: int) -> Outcome:
    """Everything that the coordinator and the sites have written down of a study."""
    state = folder / "coordinator" / "state.db"
    ((word, failure, ended, message),) = _rows(
        state, "SELECT state, failure, ended_at, plan_json FROM studies WHERE digest = ?", study
    )
    ((opened,),) = _rows(state, "SELECT MAX(opened_at) FROM rounds WHERE study = ?", study)
    now = read(state, {site: folder / "sites" / site / "state.db" for site in SITES})
    witness = Witness()
    witness.look(now)
    sealed = {round: one for (_, round), one in now.sealed.items()}
    wrong = [*witness.faults]
    if now.fixed and now.bundles:
        assert isinstance(message, bytes)
        tables = {site: folder / "sites" / f"{site}.csv" for site in SITES}
        records = {site: np.loadtxt(path, delimiter=",", skiprows=1) for site, path in tables.items()}
        wrong.append(wrong_round(plan_from_json(message), load_release(now.bundles[study]).document, records))
    return Outcome(
        state=str(word), failure=str(failure), ended_after=(int(str(ended)) - int(str(opened))) / 1000,
        releases={round: one.digest for round, one in sealed.items()},
        without=tuple(round for round, one in sealed.items() if now.fixed and FAR not in one.present),
        tried=len(witness.sets), wrong=tuple(filter(None, wrong)), disturbed=disturbed,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A federation that was set up on loopback and is copied for every scenario."""

    root: Path
    port: int
    studies: Mapping[str, Path]


def studies() -> dict[str, Study]:
    made = {}
    for name, algorithm, deadline in (
        ("short", Algorithm.GAUSS_COV, DEADLINE),
        ("doomed", Algorithm.DP_PCA, SHORT_DEADLINE),
        ("long", Algorithm.DP_PCA, DEADLINE),
    ):
        study = demo_study(len(SITES), algorithm, 2, 2.0)
        federation = replace(study.federation, deadline_seconds=deadline)
        made[name] = replace(study, federation=federation)
        fewer = replace(federation, quorum=len(SITES) - 1)
        made[f"{MASKED}{name}"] = replace(
            study, trust=Trust.SECURE_AGGREGATION, spare_attempts=1, federation=fewer
        )
    return made


def template(root: Path) -> Template:
    """Set one up with the ordinary commands, and write the studies; its sites know each other."""
    texts = {name: study_to_toml(study) for name, study in studies().items()}
    study, text = studies()["masked long"], texts["masked long"]
    with open_demo_folder(root / "template") as layout:
        layout.study.write_text(text)
        processes = Processes(layout.logs)
        try:
            federation = DemoFederation(layout, study, processes)
            write_records(layout, study, public_records().values)
            federation.set_up()
            for site in SITES:
                _allow_both(layout.site_config(site))
        finally:
            processes.stop()
        # What a site stated before is stored, and the site that is cut from the start cannot state it anew.
        with closing(sqlite3.connect(layout.coordinator / "state.db")) as database, database:
            database.execute("DELETE FROM statements")
    files = {name: root / f"{name}.toml" for name in texts}
    for name, text in texts.items():
        files[name].write_text(text)
    about = json.loads((layout.analyst / "identity.json").read_text())
    return Template(root=layout.root, port=int(about["coordinator"].rpartition(":")[2]), studies=files)


def _allow_both(config: Path) -> None:
    """A site whose peers are confirmed answers nothing but masked studies, unless it is told otherwise."""
    message = config.read_text()
    assert "\ntrust = []\n" in message
    config.write_text(message.replace("trust = []", 'trust = ["central", "secure-aggregation"]'))


def play(scenario: Scenario, made: Template, folder: Path) -> Outcome:
    """Run a scenario's study to its end, in namespaces named after its folder."""
    with running(folder.name, made.root, folder, SITES, made.port) as here:
        scenario.spoil(here, made.port)
        here.serve(SITES, SERVER)
        here.await_connected([site for site in SITES if site != FAR or scenario.spoil is not _cut])
        study = here.submit(made.studies[scenario.study])
        began, disturbed = time.monotonic(), 0
        statement = "SELECT 1 FROM studies WHERE digest = ? AND state != 'running'"
        while not _rows(folder / "coordinator" / "state.db", statement, study):
            elapsed = time.monotonic() - began
            if elapsed > END_SECONDS:
                return Outcome(state="running for ever", failure="", ended_after=0.0)
            disturbed = scenario.meddle(here, elapsed)
            here.check(("coordinator", *SITES))
            time.sleep(0.1)
        disturbed = max(disturbed, scenario.meddle(here, time.monotonic() - began))
        time.sleep(0.5)  # the far site may just be writing down what it sent last
        return read_outcome(folder, study, disturbed)


def play_all(scenarios: Sequence[Scenario], root: Path) -> dict[str, Outcome]:
    made = template(root)

    def one(numbered: tuple[int, Scenario]) -> Outcome:
        folder = root / f"r{numbered[0]}"
        folder.mkdir()
        try:
            return play(numbered[1], made, folder)
        except AssertionError as problem:
            return Outcome(state="not run", failure=str(problem), ended_after=0.0)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = pool.map(one, enumerate(scenarios))
        return {scenario.name: outcome for scenario, outcome in zip(scenarios, outcomes, strict=True)}


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    chosen = [scenario for scenario in BAD if scale >= 1.0 or scenario.name in FEW]
    kinds = {scenario.study for scenario in chosen}
    weak = [scenario for scenario in UNDISTURBED if scenario.study in kinds]
    try:
        probe()
        outcomes = play_all([*weak, *chosen], folder)
    except NotPermittedError as problem:
        return [f"no network namespaces could be made here, so nothing was shown: {problem}"], ""
    found = []
    for scenario in (*weak, *chosen):
        honest = outcomes.get(f"undisturbed {scenario.study}")
        result = faults(outcomes[scenario.name], honest, scenario)
        found += [f"{scenario.name}: {fault}" for fault in result]
    good = ", ".join(f"{one.name} {outcomes[one.name].state}" for one in chosen)
    tried = sum(outcome.tried for outcome in outcomes.values())
    good += f"; {tried} attempts at masked rounds, one set each, all paid, every sum exact"
    return found, good
