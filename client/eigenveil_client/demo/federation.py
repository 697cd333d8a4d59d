"""A federation of the demonstration: every daemon its own process, every party set up by its own commands."""

from __future__ import annotations

import math
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.accounting.budget import NoiseRule
from eigenveil.accounting.zcdp import MICRO, epsilon_at
from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.toml import dictionary_to_toml
from eigenveil.planning.resolve import make_plan
from eigenveil.study.study import FEWEST_IN_BATCH, Study
from eigenveil_client.demo.layout import Layout
from eigenveil_client.demo.processes import Job, Processes, Task
from eigenveil_client.site.policy import ALGORITHMS

NAME = "demo"
ANALYST = "ada"
COORDINATOR = "coordinator"
# Of every party's budget, and what a site grants one study, unless the study needs more.
USUAL_EPSILON, DELTA, USUAL_MOST = 10.0, 1e-6, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoLedger:
    """The coordinator's status, and for each site its `ledger` and its `egress` ledger."""

    status: dict[str, Any]
    sites: dict[str, dict[str, Any]]


class DemoFederation:
    """A coordinator and its sites on loopback, whose budgets and policies allow `study`.

    Raises:
        RequestError: no federation runs this study.
    """

    def __init__(self, layout: Layout, study: Study, processes: Processes) -> None:
        plan = make_plan(study, federation=NAME, submission=NAME)
        needed = math.ceil(epsilon_at(plan.cost.micro_rho / MICRO, DELTA) + 1)
        self._layout = layout
        self._sites = study.federation.sites
        self._masked = study.masked
        self._budget = ("--budget-epsilon", str(max(USUAL_EPSILON, needed)), "--budget-delta", str(DELTA))
        algorithms = dict.fromkeys((*ALGORITHMS, plan.algorithm.value))
        most = str(max(USUAL_MOST, study.epsilon))
        self.least = FEWEST_IN_BATCH * plan.batches  # records at a site
        self._allowed = (
            *(f"--algorithm={name}" for name in algorithms),
            *("--noise", (NoiseRule.GAUSSIAN if plan.gaussian else NoiseRule.ANY).value),
            *("--max-epsilon-per-study", most, "--minimum-records", str(self.least)),
        )
        self._processes = processes
        self.daemons: dict[str, Job] = {}

    def begin(self) -> list[Task]:
        """Start making the certificate authority, the coordinator's keys, and what each party enrols with."""
        port, enrol_port = map(str, free_ports())
        parties = [("site", name) for name in self._sites] + [("analyst", ANALYST)]
        self._processes.open_shells()
        made = self._processes.ask(
            "coordinator-init", "eigenveil-coordinator", "init", "--dir", self._layout.coordinator,
            "--federation", NAME, "--port", port, "--enrol-port", enrol_port, *self._budget, "--json",
        )  # fmt: skip
        tokens = [
            self._coordinator(
                f"{name}-token", "token", "--role", role, "--name", name, "--out", self._layout.join(name)
            )
            for role, name in parties
        ]
        return [made, *tokens]

    def set_up(self, begun: Sequence[Task]) -> None:
        """Sites make their configuration, get their tokens, make their keys and enrol; all but submit."""
        sites = [
            self._processes.ask(
                f"{name}-init", "eigenveil-site", "init", "--dir", self._layout.site(name),
                "--name", name, "--records", self._layout.records(name),
                "--approval", "auto", "--analyst", ANALYST, *self._budget, *self._allowed, "--json",
            )
            for name in self._sites
        ]  # fmt: skip
        self._processes.finish(begun)
        coordinator = self._serve_coordinator()
        self._processes.finish(sites)
        self._processes.ready([coordinator])
        enrolling = [self._site(name, "enrol", "--join", self._layout.join(name)) for name in self._sites]
        analyst = self._analyst(f"{ANALYST}-enrol", "enrol", "--join", self._layout.join(ANALYST))
        self._processes.finish([*enrolling, analyst])
        self._introduce_analyst()
        if self._masked:
            self._introduce()
        explained = [self._site(name, "explain", self._layout.study) for name in self._sites]
        serving = [self.serve_site(name) for name in self._sites]
        self._processes.finish(explained)
        self._processes.ready(serving)

    def _introduce_analyst(self) -> None:
        """Every site takes in the analyst's card and confirms its digits, as its people would by telephone:
        here one program is everybody, and compares them with themselves."""
        card = self._layout.analyst_card(ANALYST)
        exported = self._processes.finish([self._analyst("key-export", "key", "export", "--out", card)])[0]
        importing = [self._analysts(name, "import", card) for name in self._sites]
        confirm = ("confirm", ANALYST, "--fingerprint", exported["fingerprint"], "--by", NAME)
        self._processes.finish([*importing, *(self._analysts(name, *confirm) for name in self._sites)])

    def _analysts(self, name: str, act: str, *words: str | Path) -> Task:
        config = ("--config", self._layout.site_config(name), "--json")
        return self._processes.ask(
            f"{name}-analysts-{act}", "eigenveil-site", "analysts", act, *words, *config
        )

    def _introduce(self) -> None:
        """Every site takes in the others' cards and confirms them, as its people would by telephone: here all
        sites are on one machine, so that one program is everybody."""
        exporting = [
            self._peers(name, "export", "--out", self._layout.card(name), about="") for name in self._sites
        ]
        cards = dict(zip(self._sites, self._processes.finish(exporting), strict=True))
        others = {name: [one for one in self._sites if one != name] for name in self._sites}
        importing = [
            self._peers(name, "import", *map(self._layout.card, others[name]), about="")
            for name in self._sites
        ]
        confirming = [
            self._peers(
                name, "confirm", other, "--fingerprint", cards[other]["fingerprint"], "--by", NAME,
                about=other,
            )
            for name in self._sites
            for other in others[name]
        ]  # fmt: skip
        self._processes.finish([*importing, *confirming])

    def _peers(self, name: str, act: str, *words: str | Path, about: str) -> Task:
        config = ("--config", self._layout.site_config(name), "--json")
        called = "-".join(filter(None, (name, "peers", act, about)))
        return self._processes.ask(called, "eigenveil-site", "peers", act, *words, *config)

    def _coordinator(self, name: str, *words: str | Path) -> Task:
        config = self._layout.coordinator_config
        return self._processes.ask(name, "eigenveil-coordinator", *words, "--config", config, "--json")

    def _site(self, name: str, *words: str | Path) -> Task:
        config = self._layout.site_config(name)
        return self._processes.ask(
            f"{name}-{words[0]}", "eigenveil-site", *words, "--config", config, "--json"
        )

    def _analyst(self, name: str, *words: str | Path) -> Task:
        return self._processes.ask(name, "eigenveil", *words, "--profile", self._layout.analyst, "--json")

    def _serve_coordinator(self) -> Job:
        self.daemons[COORDINATOR] = self._processes.start(
            COORDINATOR, "eigenveil-coordinator", "serve", "--config", self._layout.coordinator_config
        )
        return self.daemons[COORDINATOR]

    def serve_site(self, name: str) -> Job:
        self.daemons[name] = self._processes.start(
            name, "eigenveil-site", "serve", "--config", self._layout.site_config(name)
        )
        return self.daemons[name]

    def publish(self, dictionary: Dictionary) -> None:
        """Have the coordinator's operator publish it: studies may then name its columns, and no others."""
        file = self._layout.dictionary
        file.write_text(dictionary_to_toml(dictionary))
        self._processes.finish([self._coordinator("dictionary-publish", "dictionary", "publish", file)])

    def start_submission(self) -> Task:
        """Start submitting the study."""
        return self._analyst("submit", "study", "submit", self._layout.study, "--yes")

    def finish_submission(self, task: Task) -> str:
        """Its digest."""
        return str(self._processes.finish([task])[0]["study"])

    def submit(self) -> str:
        """Submit the study; its digest."""
        return self.finish_submission(self.start_submission())

    def check(self) -> None:
        self._processes.check(list(self.daemons.values()))

    def kill(self, name: str) -> None:
        """kill -9 the coordinator or a site."""
        self._processes.kill(self.daemons.pop(name))

    def restart(self, name: str) -> None:
        """Start the coordinator or a site again, and wait until it serves."""
        job = self._serve_coordinator() if name == COORDINATOR else self.serve_site(name)
        self._processes.ready([job])

    def start_books(self) -> list[Task]:
        """Start reading the coordinator's status, and every site's own two ledgers."""
        books = (self._site(name, book, "show") for name in self._sites for book in ("ledger", "egress"))
        return [self._coordinator("status", "status"), *books]

    def finish_books(self, tasks: Sequence[Task]) -> DemoLedger:
        """What all of them say."""
        status, *told = self._processes.finish(tasks)
        pairs = zip(self._sites, told[::2], told[1::2], strict=True)
        sites = {name: {"ledger": ledger, "egress": egress} for name, ledger, egress in pairs}
        return DemoLedger(status=status, sites=sites)


def free_ports() -> tuple[int, int]:
    """Two loopback ports that nobody listens on at this moment."""
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
