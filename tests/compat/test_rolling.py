"""A federation whose parties are upgraded one after another, in real processes, beside running studies:
nothing is lost, nothing is charged twice, and no study fails. The earlier version is a wheel in its folder of
golden files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Trust
from eigenveil_client.demo.federation import COORDINATOR
from eigenveil_client.demo.layout import open_demo_folder
from tests.compat.golden import PERSON, approve, edit, federation_study, set_up, submit
from tests.compat.parties import CURRENT, SITES, WHEELS, Parties, environment, parties, unpacked, until
from tests.torture.crashes.armed import KILLED

EACH = pytest.mark.parametrize("wheel", WHEELS[-1:], ids=lambda path: path.parent.name)
KINDS = {"central": Trust.CENTRAL, "masked": Trust.SECURE_AGGREGATION, "waiting": Trust.CENTRAL}
STEPS = ("upgrade-backed-up", "upgrade-stepping", "upgrade-checked", "upgrade-committed")
WAITS = "waiting for a person"
READS = {COORDINATOR: "status"}  # a command that reads the database
EPSILON = 0.15  # of each study: ten of each kind fit into the budgets


@contextmanager
def federation(folder: Path, earlier: Path, **versions: Path | None) -> Iterator[Parties]:
    """A federation that an earlier version set up; the parties named run other versions."""
    before = os.environ.get("PYTHONPATH")
    with open_demo_folder(folder) as layout:
        os.environ["PYTHONPATH"] = environment(earlier, 0.0)["PYTHONPATH"]
        try:
            set_up(layout)
        finally:
            os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
        everyone: dict[str, Path | None] = dict.fromkeys((COORDINATOR, *SITES, "analyst"), earlier)
        with parties(layout, versions=everyone | versions) as found:
            yield found


class Queue:
    """Studies of every kind, submitted batch by batch; a person at one site decides about the third kind."""

    def __init__(self, found: Parties) -> None:
        self.found, self.studies = found, dict[str, str]()

    def add(self, each: int) -> None:
        """Submit some more studies of each kind. Those that shall wait for a person are submitted last, while
        that site asks one."""
        for kind, trust in KINDS.items():
            for _ in range(each):
                name = f"{kind}-{len(self.studies)}"
                study = federation_study(name, Algorithm.GAUSS_COV, trust, epsilon=EPSILON)
                self.studies[name] = submit(self.found, study)

    def approve(self) -> None:
        """Agree, as the person at the site, to all that waits there."""
        for name, row in self.found.studies().items():
            if row["consent"].get(PERSON) == WAITS:
                approve(self.found, self.studies[name])

    def finish(self) -> None:
        """Agree to all that waits; every study is released, and all ledgers agree."""
        found = self.found

        self.approve()
        until(
            lambda: all(row["starts"] or row["state"] == "released" for row in found.studies().values()),
            "all",
        )
        found.restart_later()

        def ended() -> bool:
            states = {row["state"] for row in found.studies().values()}
            assert "failed" not in states, found.studies()
            return states == {"released"}

        until(ended, "every study to be released", seconds=300)
        charges = found.charges()
        assert len(charges[COORDINATOR]) == len(self.studies)
        for party, paid in charges.items():
            assert paid == charges[COORDINATOR], f"{party} and the coordinator agree"
        for site in SITES:
            found.command(site, "ledger", "verify")
            found.command(site, "egress", "verify")


def upgraded(found: Parties, name: str, *, kills: bool = False) -> None:
    """Stop a daemon by kill -9, upgrade its database, at first with kills at every step, and start it as this
    version."""
    if name in found.daemons:
        found.kill(name)
    found.versions[name] = CURRENT
    for step in STEPS if kills else ():
        program = "eigenveil-coordinator" if name == COORDINATOR else "eigenveil-site"
        armed = [sys.executable, "-m", "tests.torture.crashes.armed", step, "1", program]
        line = [*armed, "upgrade", *found.config_option(name)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == KILLED, f"{step}: {done.returncode} {done.stderr}"
        readable = found.run(name, READS.get(name, "studies"))
        assert (readable.returncode == 0) is (step == "upgrade-committed"), f"{step}: whole, before or after"
    found.command(name, "upgrade")
    found.serve(name)


@pytest.mark.slow
@EACH
def test_a_rolling_upgrade_beside_studies(wheel: Path, tmp_path: Path) -> None:
    earlier = unpacked(wheel, tmp_path / "earlier")
    with federation(tmp_path / "demo", earlier) as found:
        budget = "budget_epsilon = 10.0"
        edit(found.layout.coordinator_config, budget, f"{budget}\nmax_studies_per_analyst = 30")
        edit(found.layout.site_config(PERSON), 'approval = "auto"', 'approval = "manual"')
        found.serve(COORDINATOR, *SITES)
        queue = Queue(found)
        queue.add(2)
        upgraded(found, COORDINATOR, kills=True)
        queue.add(2)
        queue.approve()
        upgraded(found, "hospital-2", kills=True)  # now as 1.0, 1.1, 1.0 under 1.1
        queue.add(2)
        queue.approve()
        upgraded(found, "hospital-1")
        queue.add(2)
        upgraded(found, PERSON)
        found.versions["analyst"] = CURRENT
        queue.add(2)
        queue.finish()


@pytest.mark.slow
@EACH
def test_a_site_that_was_upgraded_before_its_coordinator(wheel: Path, tmp_path: Path) -> None:
    earlier = unpacked(wheel, tmp_path / "earlier")
    with federation(tmp_path / "demo", earlier) as found:
        found.serve(COORDINATOR, *SITES)
        queue = Queue(found)
        queue.add(1)
        upgraded(found, "hospital-1")
        queue.add(1)
        queue.finish()


@EACH
def test_an_earlier_program_does_not_open_an_upgraded_database_and_names_the_one_that_does(
    wheel: Path, tmp_path: Path
) -> None:
    earlier = unpacked(wheel, tmp_path / "earlier")
    with federation(tmp_path / "demo", earlier, **{"hospital-1": CURRENT}) as found:
        found.command("hospital-1", "upgrade")
        found.versions["hospital-1"] = earlier
        done = found.run("hospital-1", "studies")
        assert done.returncode == 70
        assert "Install" in done.stdout + done.stderr
