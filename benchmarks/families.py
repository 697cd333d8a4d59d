"""The data families on which accuracy is stated: synthetic, scikit-learn's, and real tables where present.

A family is a study's columns and a way to draw or load its records, in the columns' units."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from eigenveil.numerics.encoding import FloatArray
from eigenveil.study.study import Column, Study
from eigenveil.study.toml import parse_study

DATA = Path(os.environ.get("EIGENVEIL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
STUDY = Path(__file__).resolve().parents[1] / "client/eigenveil_client/studies/breast-cancer.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """`draw(generator)` gives records (n, d) and the true first component (d,), or None: the exact one."""

    name: str
    columns: tuple[Column, ...]
    draw: Callable[[np.random.Generator], tuple[FloatArray, FloatArray | None]]


def box(d: int, half: float) -> tuple[Column, ...]:
    """d columns within +-half."""
    return tuple(Column(name=f"x{i}", unit="1", lower=-half, upper=half) for i in range(d))


def spiked(n: int, d: int) -> Family:
    """Gaussian rows with variances 2, 1, ..., 1: kappa 2. Bounds at 6 standard deviations."""

    def draw(generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        rows = generator.standard_normal((n, d))
        rows[:, 0] *= np.sqrt(2)
        return rows, np.eye(d)[0]

    return Family(name=f"kappa 2, {n} x {d}", columns=box(d, 6.0), draw=draw)


def plus_minus(n: int, d: int, noise: float) -> Family:
    """Rows +-v plus noise: the signal-plus-noise model."""

    def draw(generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        v = generator.standard_normal(d)
        v /= np.linalg.norm(v)
        signs = generator.choice([-1.0, 1.0], n)
        return signs[:, None] * v + noise * generator.standard_normal((n, d)), v

    half = 6 * float(np.sqrt(1 / d + noise**2))
    return Family(name=f"+-v + {noise} noise, {n} x {d}", columns=box(d, half), draw=draw)


def falling(n: int, d: int) -> Family:
    """Gaussian rows with variances 1, 1/2, 1/3, ...: every component has a gap. Truth: the rows' own."""

    def draw(generator: np.random.Generator) -> tuple[FloatArray, None]:
        return generator.standard_normal((n, d)) / np.sqrt(np.arange(1, d + 1)), None

    return Family(name=f"1 / i, {n} x {d}", columns=box(d, 6.0), draw=draw)


def fixed(name: str, columns: tuple[Column, ...], load: Callable[[], FloatArray]) -> Family:
    """A real table; the truth is its own exact first component."""
    cache: list[FloatArray] = []

    def draw(_: np.random.Generator) -> tuple[FloatArray, None]:
        if not cache:
            cache.append(load())
        return cache[0], None

    return Family(name=name, columns=columns, draw=draw)


def breast_study() -> Study:
    """The study that `eigenveil demo` submits."""
    return parse_study(STUDY.read_text())


def bundled() -> list[Family]:
    """The families that need no file: synthetic ones and scikit-learn's."""
    digits = tuple(Column(name=f"pixel{i}", unit="1", lower=0, upper=16) for i in range(64))
    return [
        spiked(10_000, 50),
        spiked(10_000, 200),
        spiked(30_000, 200),
        spiked(100_000, 200),
        plus_minus(10_000, 200, 0.3),
        plus_minus(10_000, 50, 0.03),
        fixed("breast cancer", breast_study().columns, lambda: np.asarray(load_breast_cancer().data)),
        fixed("digits", digits, lambda: np.asarray(load_digits().data)),
    ]


def present() -> list[Family]:
    """The real tables that are on this machine; a missing one is named on standard output."""
    out = []
    for name, file, columns, load in TABLES:
        if (DATA / file).exists():
            out.append(fixed(name, columns(), load))
        else:
            print(f"{name}: {file} is not here (set EIGENVEIL_DATA to its folder); left out")
    return out


def _read(file: str) -> tuple[list[str], list[list[str]]]:
    opener = gzip.open if file.endswith(".gz") else open
    with opener(DATA / file, "rt", newline="") as handle:
        rows = list(csv.reader(handle))
    return rows[0], rows[1:]


NHANES = (
    (0, 100), (20, 180), (0, 1000), (1, 3), (20, 100), (0, 80), (1, 8), (40, 600), (0, 400), (0.5, 4),
    (3, 13), (1, 2), (50, 300), (100, 800), (0, 110), (0, 60), (10, 80), (0, 200),
)  # fmt: skip


def nhanes_columns() -> tuple[Column, ...]:
    """NHANES I: generous clinical ranges."""
    return tuple(Column(name=f"x{i}", unit="1", lower=lo, upper=hi) for i, (lo, hi) in enumerate(NHANES))


def nhanes() -> FloatArray:
    """9,932 x 18; a missing value is put at the middle of its bounds."""
    _, rows = _read("nhanes1.csv")
    middle = [(lo + hi) / 2 for lo, hi in NHANES]
    return np.array(
        [
            [m if cell in ("", "NA", "nan") else float(cell) for cell, m in zip(row[1:], middle, strict=True)]
            for row in rows
        ]
    )


BRFSS = {
    "BMI": (12, 98), "GenHlth": (1, 5), "MentHlth": (0, 30), "PhysHlth": (0, 30),
    "Age": (1, 13), "Education": (1, 6), "Income": (1, 8),
}  # fmt: skip


def brfss_columns() -> tuple[Column, ...]:
    """BRFSS 2015: the codebook's ranges."""
    header, _ = _read("brfss2015.csv.gz")
    bounds = [BRFSS.get(name, (0, 1)) for name in header]
    return tuple(
        Column(name=n, unit="1", lower=lo, upper=hi) for n, (lo, hi) in zip(header, bounds, strict=True)
    )


def brfss() -> FloatArray:
    """253,680 x 22."""
    return np.array(_read("brfss2015.csv.gz")[1], dtype=float)


RANGES = {
    "time_in_hospital": (1, 14), "num_lab_procedures": (0, 140), "num_procedures": (0, 6),
    "num_medications": (0, 80), "number_outpatient": (0, 40), "number_emergency": (0, 40),
    "number_inpatient": (0, 20), "number_diagnoses": (1, 16),
}  # fmt: skip
LEVELS = {
    "A1Cresult": {"None": -1.0, "Norm": -1 / 3, ">7": 1 / 3, ">8": 1.0},
    "max_glu_serum": {"None": -1.0, "Norm": -1 / 3, ">200": 1 / 3, ">300": 1.0},
    "readmitted": {"NO": -1.0, ">30": 0.0, "<30": 1.0},
}


def diabetes_columns() -> tuple[Column, ...]:
    """Diabetes-130: 8 counts, age bracket, 29 two-valued and 3 ordered columns."""
    counts = [Column(name=n, unit="1", lower=lo, upper=hi) for n, (lo, hi) in RANGES.items()]
    age = Column(name="age", unit="years", lower=0, upper=90)
    return (*counts, age, *box(32, 1.0))


def diabetes() -> FloatArray:
    """71,518 x 41: the first encounter of each patient."""
    header, rows = _read("diabetes130.csv.gz")
    rows.sort(key=lambda row: int(row[0]))
    first: dict[str, list[str]] = {}
    for row in rows:
        first.setdefault(row[1], row)
    table = dict(zip(header, zip(*first.values(), strict=True), strict=True))

    def sign(name: str, value: str, equal: bool = True) -> list[float]:
        return [1.0 if (cell == value) is equal else -1.0 for cell in table[name]]

    drugs = header[header.index("metformin") : header.index("change")]
    columns = [
        *([float(cell) for cell in table[name]] for name in RANGES),
        [float(cell[1:].split("-")[0]) for cell in table["age"]],
        sign("gender", "Female"),
        sign("race", "Caucasian"),
        sign("race", "AfricanAmerican"),
        *(sign(drug, "No", equal=False) for drug in drugs),
        sign("change", "Ch"),
        sign("diabetesMed", "Yes"),
        *([levels[cell] for cell in table[name]] for name, levels in LEVELS.items()),
        sign("admission_type_id", "1"),
    ]
    return np.array(columns).T


TABLES: tuple[tuple[str, str, Callable[[], tuple[Column, ...]], Callable[[], FloatArray]], ...] = (
    ("NHANES I", "nhanes1.csv", nhanes_columns, nhanes),
    ("Diabetes-130", "diabetes130.csv.gz", diabetes_columns, diabetes),
    ("BRFSS", "brfss2015.csv.gz", brfss_columns, brfss),
)
