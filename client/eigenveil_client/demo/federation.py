"""Federation of the demonstration: each daemon is a process, each party is set up by its own commands."""

from __future__ import annotations

import math
import socket
from pathlib import Path
from typing import Any, NamedTuple

from eigenveil.accounting.budget import NoiseRule
from eigenveil.accounting.zcdp import MICRO, epsilon_at
from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.formats import dictionary_to_toml
from eigenveil.planning.choose import make_plan
from eigenveil.study.study import MIN_BATCH_RECORDS, Study
from eigenveil_client.demo.layout import DemoLayout
from eigenveil_client.demo.processes import Job, Processes, check
from eigenveil_client.site.policy import ALGORITHMS

NAME = "demo"
ANALYST = "ada"
COORDINATOR = "coordinator"
# Budget of every party, and a site's limit for one study, unless the study needs more.
DEFAULT_EPSILON, DELTA, DEFAULT_MAX_EPSILON = 10.0, 1e-6, 5.0


class DemoLedgers(NamedTuple):
    """The coordinator's status, and the `ledger` and the `egress` ledger of each site."""

    status: dict[str, Any]
    sites: dict[str, dict[str, Any]]


class DemoFederation:
    """A coordinator and its sites on loopback, with budgets and policies that allow `study`."""

    def __init__(self, layout: DemoLayout, study: Study, processes: Processes) -> None:
        plan = make_plan(study, federation=NAME, submission=NAME)
        needed = math.ceil(epsilon_at(plan.cost.micro_rho / MICRO, DELTA) + 1)
        self._layout, self._processes = layout, processes
        self._sites, self._masked = study.federation.sites, study.masked
        self._budget = ("--budget-epsilon", str(max(DEFAULT_EPSILON, needed)), "--budget-delta", str(DELTA))
        algorithms = dict.fromkeys((*ALGORITHMS, plan.algorithm.value))
        max_epsilon = str(max(DEFAULT_MAX_EPSILON, study.epsilon))
        self.min_site_records = MIN_BATCH_RECORDS * plan.batches  # records at a site
        self._allowed = (
            *(f"--algorithm={name}" for name in algorithms),
            *("--noise", (NoiseRule.GAUSSIAN if plan.gaussian else NoiseRule.ANY).value),
            *("--max-epsilon-per-study", max_epsilon, "--minimum-records", str(self.min_site_records)),
        )
        self.daemons: dict[str, Job] = {}

    def start_setup(self) -> list[Job]:
        """Start making the certificate authority, the coordinator's keys, and a join file for each party."""
        port, enrol_port = map(str, free_ports())
        parties = [("site", name) for name in self._sites] + [("analyst", ANALYST)]
        self._processes.open_shells()
        init_task = self._processes.enqueue(
            "coordinator-init", "eigenveil-coordinator", "init", "--dir", self._layout.coordinator,
            "--federation", NAME, "--port", port, "--enrol-port", enrol_port, *self._budget, "--json",
        )  # fmt: skip
        tokens = [
            self._coordinator_task(
                f"{name}-token", "token", "--role", role, "--name", name, "--out", self._layout.join(name)
            )
            for role, name in parties
        ]
        return [init_task, *tokens]

    def set_up(self) -> None:
        """Configure and enrol all parties, exchange the key cards, and start the daemons."""
        setup_tasks = self.start_setup()
        sites = [
            self._processes.enqueue(
                f"{name}-init", "eigenveil-site", "init", "--dir", self._layout.site(name),
                "--name", name, "--records", self._layout.records(name),
                "--approval", "auto", "--analyst", ANALYST, *self._budget, *self._allowed, "--json",
            )
            for name in self._sites
        ]  # fmt: skip
        self._processes.finish(setup_tasks)
        coordinator = self._serve_coordinator()
        self._processes.finish(sites)
        self._processes.ready([coordinator])
        joins = {name: self._layout.join(name) for name in (*self._sites, ANALYST)}
        enrol_tasks = [self._site_task(name, "enrol", "--join", joins[name]) for name in self._sites]
        analyst = self._analyst_task(f"{ANALYST}-enrol", "enrol", "--join", joins[ANALYST])
        self._processes.finish([*enrol_tasks, analyst])
        self._confirm_analyst()
        if self._masked:
            self._exchange_key_cards()
        explain_tasks = [self._site_task(name, "explain", self._layout.study) for name in self._sites]
        site_jobs = [self.serve_site(name) for name in self._sites]
        self._processes.finish(explain_tasks)
        self._processes.ready(site_jobs)

    def _confirm_analyst(self) -> None:
        """Import the analyst's key card at every site and confirm its fingerprint. In practice people compare
        it by telephone; here one program acts for all parties."""
        key_card = self._layout.key_card(ANALYST, "analyst")
        export = self._analyst_task("key-export", "key", "export", "--out", key_card)
        (exported,) = self._processes.finish([export])
        confirm = ("confirm", ANALYST, "--fingerprint", exported["fingerprint"], "--by", NAME)
        steps = ("import", key_card), confirm
        self._processes.finish(
            [self._site_task(name, "analysts", *step, words=2) for step in steps for name in self._sites]
        )

    def _exchange_key_cards(self) -> None:
        """Import the other sites' key cards at every site and confirm them. In practice people compare the
        fingerprints by telephone; here one program acts for all sites."""
        key_cards = {name: self._layout.key_card(name, "peer") for name in self._sites}
        exports = [
            self._site_task(name, "peers", "export", "--out", card, words=2)
            for name, card in key_cards.items()
        ]
        exported = dict(zip(self._sites, self._processes.finish(exports), strict=True))
        tasks = []
        for name in self._sites:
            others = [other for other in self._sites if other != name]
            others_cards = [key_cards[other] for other in others]
            tasks.append(self._site_task(name, "peers", "import", *others_cards, words=2))
            for other in others:
                confirm = ("confirm", other, "--fingerprint", exported[other]["fingerprint"], "--by", NAME)
                tasks.append(self._site_task(name, "peers", *confirm, words=3))
        self._processes.finish(tasks)

    def _coordinator_task(self, name: str, *arguments: str | Path) -> Job:
        config = ("--config", self._layout.coordinator_config, "--json")
        return self._processes.enqueue(name, "eigenveil-coordinator", *arguments, *config)

    def _site_task(self, name: str, *arguments: str | Path, words: int = 1) -> Job:
        """Queue a command of a site, named after its first `words`."""
        task_name = "-".join(map(str, (name, *arguments[:words])))
        config = ("--config", self._layout.site_config(name), "--json")
        return self._processes.enqueue(task_name, "eigenveil-site", *arguments, *config)

    def _analyst_task(self, name: str, *arguments: str | Path) -> Job:
        profile = ("--profile", self._layout.analyst, "--json")
        return self._processes.enqueue(name, "eigenveil", *arguments, *profile)

    def _serve_coordinator(self) -> Job:
        config = self._layout.coordinator_config
        return self._serve(COORDINATOR, "eigenveil-coordinator", config)

    def serve_site(self, name: str) -> Job:
        return self._serve(name, "eigenveil-site", self._layout.site_config(name))

    def _serve(self, name: str, program: str, config: Path) -> Job:
        self.daemons[name] = self._processes.start(name, program, "serve", "--config", config)
        return self.daemons[name]

    def publish(self, dictionary: Dictionary) -> None:
        """Publish the dictionary at the coordinator: studies may then use its columns only."""
        file = self._layout.dictionary
        file.write_text(dictionary_to_toml(dictionary))
        self._processes.finish([self._coordinator_task("dictionary-publish", "dictionary", "publish", file)])

    def submit(self, *options: str) -> str:
        """Submit the study and return its digest."""
        task = self._analyst_task("submit", "study", "submit", self._layout.study, "--yes", *options)
        return str(self._processes.finish([task])[0]["study"])

    def check(self) -> None:
        """Raise the error of a daemon that has ended."""
        for job in self.daemons.values():
            check(job)

    def kill(self, name: str) -> None:
        """Kill the coordinator or a site with SIGKILL."""
        self._processes.kill(self.daemons.pop(name))

    def restart(self, name: str) -> None:
        """Start the coordinator or a site again, and wait until it serves."""
        self._processes.ready([self._serve_coordinator() if name == COORDINATOR else self.serve_site(name)])

    def ledgers(self) -> DemoLedgers:
        """Return the coordinator's status and every site's two ledgers."""
        ledgers = ("ledger", "egress")
        tasks = (self._site_task(name, ledger, "show") for name in self._sites for ledger in ledgers)
        status, *outputs = self._processes.finish([self._coordinator_task("status", "status"), *tasks])
        pairs = zip(self._sites, outputs[::2], outputs[1::2], strict=True)
        sites = {name: {"ledger": ledger, "egress": egress} for name, ledger, egress in pairs}
        return DemoLedgers(status, sites)


def free_ports() -> tuple[int, int]:
    """Return two loopback ports that are free now."""
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
