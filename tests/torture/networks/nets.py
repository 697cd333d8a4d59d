"""A federation of real processes in network namespaces: one for the coordinator and one for each site.

    site 1  wan 10.77.1.2 --- 10.77.1.1  s1  coordinator, which is 10.77.0.1
    site 2  wan 10.77.2.2 --- 10.77.2.1  s2

Lines are spoiled with nftables and tc, in the namespaces only; nothing of the host changes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

COORDINATOR = "10.77.0.1"
ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 60.0
GLANCE = 0.05


class NotPermittedError(Exception):
    """This machine lets nobody make network namespaces, or lacks a tool."""


def sh(command: str, *more: str) -> str:
    """Run a command; its output.

    Raises:
        NotPermittedError: it is not there or not allowed."""
    words = (*command.split(), *more)
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
    except FileNotFoundError as problem:
        raise NotPermittedError(f"{words[0]} is not installed") from problem
    except subprocess.CalledProcessError as problem:
        raise NotPermittedError(f"{' '.join(words)}: {problem.stderr.strip()}") from problem
    return done.stdout


@dataclass
class Net:
    tag: str
    sites: Sequence[str]
    made: list[str] = field(default_factory=list)

    def space(self, name: str) -> str:
        """The namespace of a site, or of the coordinator (`c`)."""
        index = "c" if name == "c" else f"s{self.sites.index(name) + 1}"
        return f"ev{os.getpid()}-{self.tag}-{index}"

    def make(self) -> None:
        middle = self._add("c")
        sh(f"ip -n {middle} addr add {COORDINATOR}/32 dev lo")
        for number, site in enumerate(self.sites, 1):
            edge, line = self._add(site), f"s{number}"
            sh(f"ip link add {line} netns {middle} type veth peer name wan netns {edge}")
            sh(f"ip -n {middle} addr add 10.77.{number}.1/30 dev {line}")
            sh(f"ip -n {edge} addr add 10.77.{number}.2/30 dev wan")
            sh(f"ip -n {middle} link set {line} up")
            sh(f"ip -n {edge} link set wan up")
            sh(f"ip -n {edge} route add {COORDINATOR}/32 via 10.77.{number}.1")
            self._nft(site, "add table inet spoil")
            for hook in ("input", "output"):
                chain = f"add chain inet spoil {hook} {{ type filter hook {hook} priority 0; }}"
                self._nft(site, chain)

    def _nft(self, name: str, rule: str) -> str:
        return sh(f"ip netns exec {self.space(name)} nft", rule)

    def _add(self, name: str) -> str:
        space = self.space(name)
        sh(f"ip netns add {space}")
        self.made.append(space)
        sh(f"ip -n {space} link set lo up")
        return space

    def spoil(self, site: str, what: str) -> None:
        """Add an nftables rule to both directions of a site's line; `what` is its verdict part."""
        for hook, route in (("input", "iifname"), ("output", "oifname")):
            rule = f'add rule inet spoil {hook} {route} "wan" {what}'
            self._nft(site, rule)

    def heal(self, site: str) -> int:
        hit = self.hit(site)
        self._nft(site, "flush table inet spoil")
        return hit

    def hit(self, site: str) -> int:
        """Number of packets that the rules of a site's line have hit."""
        result = self._nft(site, "list ruleset")
        return sum(map(int, re.findall(r"counter packets (\d+)", result)))

    def double(self, site: str) -> None:
        number = self.sites.index(site) + 1
        for name, line, other in (("c", f"s{number}", 2), (site, "wan", 1)):
            again = f"counter dup to 10.77.{number}.{other} device {line}"
            for what in (
                "table ip double",
                "chain ip double output { type filter hook output priority 0; }",
                f"rule ip double output oifname {line} {again}",
            ):
                self._nft(name, f"add {what}")

    def slow(self, site: str, rate: str) -> None:
        for space, line in self._ends(site):
            # One packet at once: with more, a site on a busy machine may never send fast enough to wait.
            sh(f"tc -n {space} qdisc add dev {line} root tbf rate {rate} burst 1600 latency 2s")

    def queued(self, site: str) -> int:
        """Number of packets that a limited line made wait, both ways."""
        result = [sh(f"tc -n {space} -s qdisc show dev {line}") for space, line in self._ends(site)]
        return sum(map(int, re.findall(r"overlimits (\d+)", " ".join(result))))

    def _ends(self, site: str) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.space("c"), f"s{self.sites.index(site) + 1}"), (self.space(site), "wan")

    def remove(self) -> None:
        """Everything `make` made; processes in it must have ended."""
        for space in self.made:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def probe() -> None:
    """Make and remove a net, so that a machine where that is forbidden says so at once.

    Raises:
        NotPermittedError: nobody may here."""
    net = Net(tag="probe", sites=("a",))
    try:
        net.make()
        net.spoil("a", "counter drop")
        net.slow("a", "64kbit")
    finally:
        net.remove()


@dataclass
class Running:
    """Copies of a federation's folders, and the processes that run them in a net of their own."""

    net: Net
    folder: Path
    jobs: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, space: str, module: str, *words: str | Path) -> Path:
        """Start `python -m module words` in a namespace; where its standard output goes."""
        out = self.folder / f"{name}.out"
        line = ["ip", "netns", "exec", self.net.space(space), sys.executable, "-m", module, *map(str, words)]
        with out.open("wb") as output, (self.folder / f"{name}.log").open("ab") as problems:
            self.jobs[name] = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=output, stderr=problems, cwd=ROOT,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        return out

    def message(self, name: str, out: Path) -> dict[str, object]:
        deadline = time.monotonic() + START_SECONDS
        while b"\n" not in out.read_bytes():
            if self.jobs[name].poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{name}: {(self.folder / f'{name}.log').read_text()[-500:]}")
            time.sleep(GLANCE)
        result: dict[str, object] = json.loads(out.read_text().splitlines()[0])
        return result

    def serve(self, sites: Sequence[str], coordinator: str) -> None:
        """Start the coordinator and the sites' daemons; `coordinator` is the module that serves."""
        config = self.folder / "coordinator" / "coordinator.toml"
        self.message("coordinator", self.start("coordinator", "c", coordinator, "serve", "--config", config))
        for site in sites:
            config = self.folder / "sites" / site / "site.toml"
            words = ("eigenveil-site", "serve", "--config", config)
            self.start(site, site, "tests.torture.masked.process", *words)  # with known shares of noise

    def await_connected(self, sites: Sequence[str]) -> None:
        """Wait until the logs of these sites say so: on a busy machine that takes a while."""
        deadline = time.monotonic() + START_SECONDS
        for site in sites:
            log = self.folder / f"{site}.log"
            while " connected" not in log.read_text():
                if self.jobs[site].poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"{site} did not connect: {log.read_text()[-500:]}")
                time.sleep(GLANCE)

    def check(self, names: Sequence[str]) -> None:
        """Insist that these daemons still run: none may end because of its network."""
        for name in names:
            if self.jobs[name].poll() is not None:
                last = (self.folder / f"{name}.log").read_text()[-500:]
                raise AssertionError(f"{name} ended with {self.jobs[name].returncode}: {last}")

    def submit(self, study: Path) -> str:
        """Submit as the analyst, from the coordinator's own namespace; the study's digest."""
        profile = ("--profile", self.folder / "analyst", "--submission", "torture", "--json")
        words = ("study", "submit", "--yes", study, *profile)
        result = self.message("submit", self.start("submit", "c", "eigenveil_client.cli", *words))
        if "study" not in result:
            raise AssertionError(f"the study was not accepted: {result}")
        return str(result["study"])

    def stop(self) -> None:
        """kill -9: nothing may depend on an orderly end."""
        for job in self.jobs.values():
            job.kill()
            job.wait()


@contextmanager
def running(tag: str, template: Path, folder: Path, sites: Sequence[str], port: int) -> Iterator[Running]:
    """Copy a federation that was set up on loopback, address it anew, and clean up at the end."""
    net = Net(tag=tag, sites=sites)
    for part in ("coordinator", "sites", "analyst"):
        shutil.copytree(template / part, folder / part)
    _replace(folder / "coordinator" / "coordinator.toml", 'host = "127.0.0.1"', f'host = "{COORDINATOR}"')
    for profile in (folder / "analyst", *(folder / "sites" / site / "identity" for site in sites)):
        _replace(profile / "identity.json", f"127.0.0.1:{port}", f"{COORDINATOR}:{port}")
    here = Running(net=net, folder=folder)
    try:
        net.make()
        yield here
    finally:
        here.stop()
        net.remove()


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if text.count(old) != 1:
        raise AssertionError(f"{path} does not hold {old!r} once")
    path.write_text(text.replace(old, new))
