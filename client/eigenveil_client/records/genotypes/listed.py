"""The variants that a file lists, for somebody who writes a study of them: no genotype is looked at."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from eigenveil_client.records.genotypes.alleles import header
from eigenveil_client.records.genotypes.plink import BIM, words_of_lines
from eigenveil_client.records.genotypes.vcf_zarr import ZARR, zarr_matrix
from eigenveil_client.records.tables.table import BadRecords

LIST = ".bim"
EITHER_STRAND = ({"A", "T"}, {"C", "G"})
NO_ALLELE = {"0", ".", ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A column for each variant that a study can ask for, and how many variants of the file are none: they
    read alike on both strands, or have one allele alone."""

    columns: tuple[str, ...]
    left_out: int


def listed(path: Path) -> Listed:
    """The variants of a .bim or of a VCF-Zarr group, each by its first allele there (A1), or by its first
    alternate.

    Raises:
        BadRecords: the file cannot be read, or a variant's name is there twice.
    """
    found = _variants(path)
    usable = [(name, counted) for name, counted, other in found if _tells_strand(counted, other)]
    twice = [name for name, times in Counter(name for name, _ in usable).items() if times > 1]
    if twice:
        names = ", ".join(twice[:3])
        raise BadRecords(f"{path} has {len(twice)} names of several variants ({names}); give each its own")
    return Listed(columns=tuple(header(*one) for one in usable), left_out=len(found) - len(usable))


def _tells_strand(counted: str, other: str) -> bool:
    both = {counted.upper(), other.upper()}
    return both not in EITHER_STRAND and not both & NO_ALLELE


def _variants(path: Path) -> list[tuple[str, str, str]]:
    """Of each its name, the allele that is counted, and the other."""
    if path.suffix.lower() == LIST:
        return [(words[1], words[4], words[5]) for words in words_of_lines(path, BIM)]
    if path.suffix.lower() not in ZARR:
        raise BadRecords(f"{path}: variants are listed in {LIST} or {', '.join(ZARR)}, not {path.suffix!r}")
    group = zarr_matrix(path)
    alleles: dict[int, list[tuple[str, str]]] = {}
    for variant, column in zip(group.alleles.variant.tolist(), group.headers, strict=True):
        name, _, allele = column.rpartition("_")
        alleles.setdefault(variant, []).append((name, allele))
    return [(of[0][0], of[1][1], of[0][1]) for of in alleles.values() if len(of) > 1]
