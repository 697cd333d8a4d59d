"""The same genotypes in each of the files that hold such."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import zarr
from bed_reader import to_bed
from numpy.typing import NDArray

from eigenveil.study.study import Column, Federation, Missing, Study
from eigenveil_client.records.genotype_table import MISSING

Counts = NDArray[np.int8]
A1, A2 = "A", "G"


def genotypes(persons: int, variants: int, seed: int = 0) -> Counts:
    """Counts of A1 by person and variant; some are not known. Shape: (persons, variants)."""
    generator = np.random.default_rng(seed)
    counts = generator.choice(
        np.array([0, 1, 2, MISSING], dtype=np.int8), (persons, variants), p=(0.4, 0.3, 0.2, 0.1)
    )
    return np.asarray(counts)


def ids(variants: int) -> list[str]:
    return [f"rs{number}" for number in range(variants)]


def a_study(
    names: Sequence[str], *, fill: float | None = None, lower: float = 0.0, upper: float = 2.0, steps: int = 1
) -> Study:
    columns = [Column(name=name, unit="alleles", lower=lower, upper=upper, fill=fill) for name in names]
    return Study(
        name="genotypes", columns=tuple(columns), epsilon=1.0, delta=1e-6, components=1,
        federation=Federation(sites=("north",)), missing=Missing.DROP if fill is None else Missing.FILL,
        grid_steps=steps,
    )  # fmt: skip


def counted(variants: int, allele: str = A1) -> list[str]:
    return [f"{name}_{allele}" for name in ids(variants)]


def plink(path: Path, counts: Counts, *, swapped: Sequence[int] = (), fid: Sequence[str] = ()) -> Path:
    """A .bed with its lists; of the variants `swapped` it counts the other allele."""
    variants = counts.shape[1]
    first, second, stored = [A1] * variants, [A2] * variants, np.where(counts == MISSING, -127, counts)
    for number in swapped:
        first[number], second[number] = A2, A1
        stored[:, number] = np.where(counts[:, number] == MISSING, -127, 2 - counts[:, number])
    people = {"iid": [f"p{number}" for number in range(len(counts))], "fid": list(fid) or ["0"] * len(counts)}
    lists = {"sid": ids(variants), "allele_1": first, "allele_2": second, **people}
    to_bed(path, stored.astype(np.int8), properties=lists)
    return path


def vcf_zarr(
    path: Path, counts: Counts, *, phase: int = 0, chunks: tuple[int, int] = (3, 4), fill: int = 0
) -> Path:
    """VCF-Zarr with A2 as the reference; which of two alleles stands first is drawn by `phase`."""
    calls = np.stack([counts >= 1, counts == 2], axis=2).astype(np.int8)
    turn = np.random.default_rng(phase).random(counts.shape) < 0.5
    calls[turn] = calls[turn][:, ::-1]
    calls[counts == MISSING] = np.array([-1, 1]) if phase else -1
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    group.create_array(
        "call_genotype", data=calls.transpose(1, 0, 2).copy(), chunks=(*chunks, 2), fill_value=fill
    )
    lists = {
        "sample_id": [f"p{number}" for number in range(len(counts))],
        "variant_id": ids(counts.shape[1]),
        "variant_allele": [[A2, A1, ""]] * counts.shape[1],
    }
    for name, cells in lists.items():
        group.create_array(name, data=np.array(cells))
    return path


def table(path: Path, counts: Counts, kind: pa.DataType) -> Path:
    """Parquet with a column for each variant, of numbers of this type."""
    arrays = [pa.array(column, mask=column == MISSING).cast(kind) for column in counts.T]
    people = pa.array([f"p{number}" for number in range(len(counts))])
    parquet.write_table(pa.table([people, *arrays], names=["iid", *counted(counts.shape[1])]), path)
    return path
