"""`make golden`: files of this version, for the tests of all later ones, in a folder of tests/compat that is
named by the first two numbers of the version. Files of a version that was published never change.

- `names.json`: all names that others write down.
- `releases`: a signed release of each algorithm, and of a masked study.
- `federation.tar.xz`: a coordinator, three sites and an analyst in the middle of their work: studies that are
  finished, running, waiting for a person, and masked ones, killed without warning.
- `made.json`: when and where it was made, its studies with their state, and the digest of every release."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil import __version__, simulate
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.algorithms import ALGORITHMS
from eigenveil.reporting.document import signed_release
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Federation, Study, Trust
from eigenveil.study.toml import study_to_toml
from eigenveil_client.demo.federation import COORDINATOR, DemoFederation
from eigenveil_client.demo.layout import (
    DemoLayout,
    demo_dictionary,
    demo_study,
    open_demo_folder,
    public_records,
    write_records,
)
from eigenveil_client.demo.processes import Processes
from tests.compat.names import names
from tests.compat.parties import HERE, SITES, Parties, parties, until
from tests.support import a_column

KEY = Ed25519PrivateKey.from_private_bytes(bytes(31) + b"\7")  # of the releases in `releases`
FEDERATION, MADE, NAMES, RELEASES = "federation.tar.xz", "made.json", "names.json", "releases"
RECORDS = 600  # of each release
WEEK = 7 * 86400.0
FINISHED, RUNNING, WAITING = ("central", "masked"), ("running", "masked-running"), "waiting"
PERSON = "hospital-3"  # where a person decides about the studies after the first two


def small_study(algorithm: Algorithm) -> Study:
    """Three columns of whole numbers between -4 and 4, which every algorithm takes."""
    properties = algorithm.properties
    alone = properties.one_site or properties.single_records
    return Study(
        name="golden",
        columns=tuple(a_column(f"c{i}", -4.0, 4.0) for i in range(3)),
        epsilon=0.5 if properties.single_records else 4.0,
        delta=1e-6,
        components=1,
        algorithm=algorithm,
        neighbours=Neighbours.REPLACE_ONE if properties.single_records else Neighbours.ADD_REMOVE,
        expected_records=RECORDS,
        federation=Federation(sites=("north",) if alone else ("north", "south"), minimum_cohort=1),
    )


def small_release(study: Study) -> bytes:
    """A release of the study on a plane of whole numbers, signed by KEY."""
    generator = np.random.default_rng(0)
    first = generator.integers(-1, 2, size=(RECORDS, 2))
    rows = np.column_stack([first, first.sum(axis=1)]).astype(float)
    parts = np.array_split(rows, len(study.federation.sites))
    run = simulate(study, dict(zip(study.federation.sites, parts, strict=True)), seed=1)
    public = KEY.public_key().public_bytes_raw()
    return signed_release(run.document, run.result, sign=KEY.sign, public_key=public)


def write_releases(folder: Path) -> dict[str, str]:
    """Write a release of each algorithm that is private; their digests."""
    studies = {one.value: small_study(one) for one in ALGORITHMS if one.properties.private}
    masked = small_study(Algorithm.GAUSS_COV)
    sites = replace(masked.federation, sites=("north", "south", "west"))
    studies["masked"] = replace(masked, trust=Trust.SECURE_AGGREGATION, federation=sites)
    folder.mkdir()
    digests = {}
    for name, study in studies.items():
        data = small_release(study)
        (folder / f"{name}.zip").write_bytes(data)
        digests[name] = hashlib.sha256(data).hexdigest()
    return digests


def federation_study(name: str, algorithm: Algorithm, trust: Trust, epsilon: float = 0.3) -> Study:
    study = replace(demo_study(len(SITES), algorithm, 2, epsilon, trust), name=name)
    return replace(study, federation=replace(study.federation, deadline_seconds=WEEK))


def submit(found: Parties, study: Study) -> str:
    path = found.layout.root / f"{study.name}.toml"
    path.write_text(study_to_toml(study))
    return str(found.command("analyst", "study", "submit", path, "--yes")["study"])


def set_up(layout: DemoLayout) -> None:
    """Enrol all parties and publish a dictionary; sites answer central and masked studies by themselves."""
    study = federation_study("central", Algorithm.NOISY_POWER, Trust.SECURE_AGGREGATION)
    layout.study.write_text(study_to_toml(study))
    processes = Processes(layout.logs)
    try:
        federation = DemoFederation(layout, study, processes)
        write_records(layout, study, public_records().values)
        federation.set_up()
        federation.publish(demo_dictionary(study))
    finally:
        processes.stop()
    for name in SITES:
        edit(layout.site_config(name), "trust = []", 'trust = ["central", "secure-aggregation"]')


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert f"\n{old}\n" in text, f"{path} has no line {old}"
    path.write_text(text.replace(f"\n{old}\n", f"\n{new}\n"))


def approve(found: Parties, study: str) -> None:
    """Agree, as the person at a site."""
    found.command(PERSON, "approve", study, "--yes", "--by", "an officer")


def work(found: Parties) -> dict[str, str]:
    """Studies up to the states of FINISHED, RUNNING and WAITING; their digests by name."""
    layout, digests = found.layout, dict[str, str]()
    found.serve(COORDINATOR)
    found.serve(*SITES)
    for name in FINISHED:
        trust = Trust.SECURE_AGGREGATION if name == "masked" else Trust.CENTRAL
        digests[name] = submit(found, federation_study(name, Algorithm.GAUSS_COV, trust))
    found.until_ended(*FINISHED)
    for name in FINISHED:
        out = layout.root / name
        found.command("analyst", "study", "result", digests[name], "--out", out)
        found.command("analyst", "study", "log", digests[name], "--out", out / "rounds.json")
    found.kill(PERSON)
    edit(layout.site_config(PERSON), 'approval = "auto"', 'approval = "manual"')
    found.serve(PERSON)
    for name in (*RUNNING, WAITING):
        trust = Trust.SECURE_AGGREGATION if name.startswith("masked") else Trust.CENTRAL
        algorithm = Algorithm.GAUSS_COV if name == WAITING else Algorithm.DP_PCA
        digests[name] = submit(found, federation_study(name, algorithm, trust))
    waits = dict.fromkeys((*RUNNING, WAITING), "waiting for a person")
    until(
        lambda: (
            {name: row["consent"].get(PERSON) for name, row in found.studies().items() if name in waits}
            == waits
        ),
        "the questions to a person",
    )
    running = [digests[name] for name in RUNNING]
    for study in running:
        approve(found, study)
    until(lambda: all(found.studies()[name]["starts"] for name in RUNNING), "the agreement of all")
    found.restart_later()
    until(lambda: min(map(found.rounds, running)) > 0, "a round of each", every=0.005)
    found.kill("hospital-2")
    states = {name: row["state"] for name, row in found.studies().items()}
    assert [states[name] for name in RUNNING] == ["running"] * 2, states
    found.command(COORDINATOR, "backup", "--out", layout.root / "backup")
    return digests


def write_federation(folder: Path) -> dict[str, Any]:
    """Make a federation, kill it and keep it; what its tests must know."""
    with tempfile.TemporaryDirectory() as temporary, open_demo_folder(Path(temporary) / "demo") as layout:
        set_up(layout)
        with parties(layout) as found:
            digests = work(found)
        ports = re.findall(r"^(?:enrol_)?port = (\d+)$", layout.coordinator_config.read_text(), re.MULTILINE)
        with tarfile.open(folder / FEDERATION, "w:xz") as archive:
            for path in sorted(layout.root.iterdir()):
                if path != layout.logs:
                    archive.add(path, path.name)
        at = int(time.time() + found.offset)
        return {"at": at, "root": str(layout.root), "ports": list(map(int, ports)), "studies": digests}


def main() -> int:
    """Write the files of this version. Return exit code 2 if its folder exists."""
    os.environ["PYTHONPATH"] = str(HERE / "dated")
    folder = HERE / ".".join(__version__.split(".")[:2])
    if folder.exists():
        print(f"{folder} exists: files of a version never change", file=sys.stderr)
        return 2
    folder.mkdir()
    (folder / NAMES).write_text(json.dumps(names(), indent=1) + "\n")
    releases = write_releases(folder / RELEASES)
    made = {"version": __version__, "releases": releases, **write_federation(folder)}
    (folder / MADE).write_text(json.dumps(made, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
