"""Folder of a demonstration: its paths, its study and its records."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np

from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.simulation import split_rows
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Study, Trust
from eigenveil.study.toml import parse_study
from eigenveil_common.concurrency import try_lock
from eigenveil_common.files import is_occupied, make_folder, path_exists

MARKER = ".eigenveil-demo"
NAMES = (
    *("coordinator", "sites", "analyst", "join", "logs"),
    *("study.toml", "dictionary.toml", "release.zip", "report.html"),
)


class DemoLayout:
    """Paths in the demonstration's folder, for each party and shared. `logs` holds the log and the standard
    output of every process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.coordinator = root / "coordinator"
        self.coordinator_config = self.coordinator / "coordinator.toml"
        self.analyst = root / "analyst"
        self.study = root / "study.toml"
        self.dictionary = root / "dictionary.toml"
        self.release, self.report = root / "release.zip", root / "report.html"
        self.logs = root / "logs"

    def site(self, name: str) -> Path:
        return self.root / "sites" / name

    def site_config(self, name: str) -> Path:
        return self.site(name) / "site.toml"

    def records(self, name: str) -> Path:
        return self.root / "sites" / f"{name}.csv"

    def join(self, name: str) -> Path:
        """Return the path of the join file of a site or of the analyst."""
        return self.root / "join" / f"{name}.json"

    def key_card(self, name: str, kind: str) -> Path:
        """Return the path of a key card for the sites: of a `peer`, or of an `analyst`."""
        return self.root / "join" / f"{name}.{kind}"


@contextmanager
def open_demo_folder(root: Path) -> Iterator[DemoLayout]:
    """Lock and yield an empty demonstration folder. Only files of an earlier demonstration are replaced."""
    root = root.absolute()
    marker = root / MARKER
    if not path_exists(marker) and is_occupied(root):
        raise RequestError(
            Code.CONFLICT, f"{root} is not empty and was not made by a demonstration; choose another --out"
        )
    make_folder(root)
    lock = try_lock(marker)
    if lock is None:
        raise RequestError(Code.CONFLICT, f"a demonstration runs in {root}; wait until it ends")
    with lock:
        for path in map(root.joinpath, NAMES):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        for name in ("sites", "join", "logs"):
            (root / name).mkdir(mode=0o700)
        yield DemoLayout(root)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicRecords:
    """Records of the demonstration. Shape: values (569, 30), groups (569,)."""

    values: FloatArray
    groups: tuple[str, ...]


def public_records() -> PublicRecords:
    """Return scikit-learn's breast-cancer records, which are public."""
    text = files("eigenveil_client").joinpath("studies", "breast-cancer.csv").read_text()
    _, *rows = csv.reader(text.splitlines())
    values = np.array([row[:-1] for row in rows], dtype=np.float64)
    return PublicRecords(values=values, groups=tuple(row[-1] for row in rows))


def demo_study(
    sites: int, algorithm: Algorithm, components: int, epsilon: float, trust: Trust = Trust.CENTRAL
) -> Study:
    """Return the packaged study with these settings."""
    study = parse_study(files("eigenveil_client").joinpath("studies", "breast-cancer.toml").read_text())
    names = tuple(f"hospital-{i + 1}" for i in range(sites))
    settings = replace(study, algorithm=algorithm, components=components, epsilon=epsilon, trust=trust)
    return replace(settings, federation=replace(study.federation, sites=names))


def demo_dictionary(study: Study) -> Dictionary:
    """Return the dictionary of the columns of a demonstration's study."""
    rows = [
        DictionaryColumn(
            name=column.name, meaning=f"{column.name} of the nuclei in a sample of cells", unit=column.unit,
            lower=column.lower, upper=column.upper, source="what the instrument can plausibly show",
        )
        for column in study.columns
    ]  # fmt: skip
    return Dictionary(
        name=study.name, version=1, columns=tuple(rows), about="Nuclei of cells in breast masses"
    )


def write_records(layout: DemoLayout, study: Study, values: FloatArray) -> dict[str, int]:
    """Write one CSV file for each site, the first the largest; return the numbers of records."""
    parts = split_rows(values, {name: 1 / (i + 1) for i, name in enumerate(study.federation.sites)})
    for name, part in parts.items():
        with layout.records(name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([column.name for column in study.columns])
            writer.writerows(part.tolist())
    return {name: len(part) for name, part in parts.items()}
