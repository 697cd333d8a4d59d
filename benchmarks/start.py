"""Cost of starting: processor time of help, and of daemons until they serve; megabytes of each role.

python -m benchmarks.start                  # a table, and the demonstration once
python -m benchmarks.start --beside TREE    # the demonstration in turns with that of another tree"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.process import kept_if_failed
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.toml import study_to_toml
from eigenveil_client.demo.federation import COORDINATOR, DemoFederation
from eigenveil_client.demo.layout import demo_study, open_demo_folder, public_records, write_records
from eigenveil_client.demo.processes import Processes, command_line

ROOT = Path(__file__).resolve().parents[1]
RUNS = 5
HELP_SECONDS, SERVE_SECONDS, SITE_MEGABYTES = 0.3, 1.0, 350
PLAIN = {"python -c pass": "pass", "python -c 'import numpy'": "import numpy"}
COMMANDS = (
    *("eigenveil", "eigenveil demo", "eigenveil simulate", "eigenveil plan", "eigenveil compare"),
    *("eigenveil study submit", "eigenveil verify", "eigenveil-site", "eigenveil-site init"),
    *(
        "eigenveil-site serve",
        "eigenveil-site explain",
        "eigenveil-site ledger show",
        "eigenveil-coordinator",
    ),
    *("eigenveil-coordinator init", "eigenveil-coordinator serve", "eigenveil-coordinator ca rotate"),
)
ROLES = {
    "site": ("site",),
    "coordinator": ("coordinator", "postgres"),
    "analyst": ("analyst",),
    "estimators": ("estimators",),
    "all of these": ("site", "coordinator", "postgres", "analyst", "estimators"),
}


def processor_seconds(command: list[str], cwd: Path = ROOT) -> tuple[float, float]:
    """Processor and wall seconds of a command and of all that it waits for.

    Raises:
        SystemExit: the command failed."""
    begin, before = time.monotonic(), getrusage(RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"{command}: {done.stderr.decode()}")
    after = getrusage(RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, time.monotonic() - begin


def best(command: list[str]) -> float:
    """The least processor time of several runs: whatever else the machine does only adds."""
    return min(processor_seconds(command)[0] for _ in range(RUNS))


def helps() -> float:
    """Print what each command's help takes beside a bare interpreter; the worst."""
    print(f"help, processor seconds (best of {RUNS}; at most {HELP_SECONDS:g})")
    for name, code in PLAIN.items():
        print(f"  {best([sys.executable, '-c', code]):.2f}  {name}")
    found = {}
    for command in COMMANDS:
        program, *words = command.split()
        found[command] = best([*command_line(program), *words, "--help"])
        print(f"  {found[command]:.2f}  {command} --help")
    return max(found.values())


def until_serving(federation: DemoFederation, name: str) -> float:
    """Processor seconds of a daemon that is started anew, until it says that it serves."""
    federation.kill(name)
    federation.restart(name)
    stat = Path(f"/proc/{federation.daemons[name].process.pid}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def daemons() -> float:
    """Print what the daemons take; the worst."""
    study = demo_study(1, Algorithm.GAUSS_COV, 1, 1.0)
    with kept_if_failed() as folder, open_demo_folder(folder / "demo") as layout:
        layout.study.write_text(study_to_toml(study))
        processes = Processes(layout.logs)
        try:
            federation = DemoFederation(layout, study, processes)
            write_records(layout, study, public_records().values)
            federation.set_up()
            (site,) = study.federation.sites
            found = {
                name: min(until_serving(federation, name) for _ in range(RUNS))
                for name in (COORDINATOR, site)
            }
        finally:
            processes.stop()
    print(f"until it serves, processor seconds (best of {RUNS}; at most {SERVE_SECONDS:g})")
    print(
        f"  {found[COORDINATOR]:.2f}  eigenveil-coordinator serve\n  {found[site]:.2f}  eigenveil-site serve"
    )
    return max(found.values())


def closure(wanted: list[str]) -> set[str]:
    """Names of all distributions that these requirements bring, as they are installed here."""
    names: set[str] = set()
    left = [Requirement(line) for line in wanted]
    while left:
        one = left.pop()
        name = canonicalize_name(one.name)
        if name not in names:
            names.add(name)
            left += needed(name, one.extras)
    return names


def needed(name: str, extras: set[str]) -> Iterator[Requirement]:
    for line in distribution(name).requires or ():
        one = Requirement(line)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield one


def megabytes(names: set[str]) -> float:
    """Of the files that their wheels hold, without the bytecode that Python adds."""
    stored = (file for name in names for file in distribution(name).files or () if file.suffix != ".pyc")
    return sum(os.stat(file.locate()).st_size for file in stored) / 2**20


def sizes() -> float:
    """Print what each role must install; the megabytes of a site."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    print(f"libraries, MB (a site at most {SITE_MEGABYTES})")
    for role, chosen in {"none": (), **ROLES}.items():
        names = closure([*project["dependencies"], *(line for extra in chosen for line in extras[extra])])
        largest = sorted(names, key=lambda name: -megabytes({name}))[:4]
        print(f"  {megabytes(names):4.0f}  {role} ({len(names)}; {', '.join(largest)})")
    return megabytes(closure([*project["dependencies"], *extras["site"]]))


def demo(trees: list[Path], runs: int) -> None:
    """Run the demonstration of each tree in turns; print the medians."""
    found: dict[Path, list[tuple[float, float]]] = {tree: [] for tree in trees}
    with kept_if_failed() as folder:
        for _ in range(runs):
            for tree in trees:
                command = [str(tree / ".venv" / "bin" / "eigenveil"), "demo", "--out", f"{folder}/out"]
                found[tree].append(processor_seconds(command, tree))
    print(f"eigenveil demo, medians of {runs}")
    for tree, pairs in found.items():
        used, wall = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"  {used:.1f} processor seconds, {wall:.1f} seconds  {tree}")


def main(beside: Path | None = None) -> int:
    """Print all of it; 1 if a target was missed."""
    if beside is not None:
        demo([beside, ROOT], RUNS)
        return 0
    worst, slowest, site = helps(), daemons(), sizes()
    demo([ROOT], 1)
    return int(worst > HELP_SECONDS or slowest > SERVE_SECONDS or site > SITE_MEGABYTES)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--beside", type=Path, help="another tree with a .venv")
    sys.exit(main(parser.parse_args().beside))
