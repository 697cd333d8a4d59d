"""PLINK 1: a .bed of genotypes beside a .bim that lists its variants and a .fam that lists its persons.

In a .bim the first allele of a line is A1, which a .bed counts, and the second A2: a person with x of the one
has 2 - x of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil_client.records.genotypes.alleles import MISSING, Alleles, Counts, header
from eigenveil_client.records.tables.config import LISTS
from eigenveil_client.records.tables.digest import digest
from eigenveil_client.records.tables.table import BadRecords
from eigenveil_common.command import needing

MAGIC = bytes([0x6C, 0x1B, 0x01])  # the last one: variant by variant
IN_BYTE = 4  # persons
TOGETHER = 64  # variants that are gone over while they are in the cache
BIM = ("chromosome", "variant", "morgans", "position", "A1", "A2")
FAM = ("FID", "IID", "father", "mother", "sex", "phenotype")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlinkMatrix:
    """The genotypes of a .bed."""

    path: Path
    names: Mapping[str, Sequence[str]]
    headers: tuple[str, ...]
    persons: int

    @property
    def alleles(self) -> Alleles:
        places = np.arange(len(self.headers), dtype=np.int64)
        return Alleles(variant=places // 2, allele=places % 2)

    @property
    def at_once(self) -> int:
        return IN_BYTE

    def counts(self, here: slice, columns: Alleles) -> Counts:
        # with the numbers given it does not read the lists again; they were held to the file's length
        variants = len(self.headers) // 2
        with _library()(self.path, iid_count=self.persons, sid_count=variants, skip_format_check=True) as bed:
            counts: Counts = bed.read(index=np.s_[here, columns.variant], dtype="int8", order="F").T
        for start in range(0, len(counts), TOGETHER):
            some, other = counts[start : start + TOGETHER], columns.allele[start : start + TOGETHER] == 1
            missing = some < 0  # that library's own number for it
            np.subtract(2, some, out=some, where=other[:, None])
            np.copyto(some, MISSING, where=missing)
        return counts

    def digest(self) -> bytes:
        return digest(*plink_files(self.path))


def _library() -> Any:
    with needing("genotypes"):  # a site with other records has no such library
        from bed_reader import open_bed
    return open_bed


def plink_files(path: Path) -> tuple[Path, Path, Path]:
    """The .bed, its .bim and its .fam."""
    bim, fam = (path.with_suffix(ending) for ending in LISTS)
    return path, bim, fam


def plink_matrix(path: Path) -> PlinkMatrix:
    """A .bed and what lies beside it.

    Raises:
        BadRecords: one of the three cannot be read, or they do not fit each other.
        RequestError: code `bad-config`, the library is not installed.
    """
    _library()  # a site without it should not start
    _, bim, fam = plink_files(path)
    people = list(words_of_lines(fam, FAM))
    headers = tuple(
        header(variant, allele) for _, variant, _, _, *both in words_of_lines(bim, BIM) for allele in both
    )
    names = {"iid": [iid for _, iid, *_ in people], "fid": [fid for fid, *_ in people]}
    _check_size(path, len(people), len(headers) // 2)
    return PlinkMatrix(path=path, names=names, headers=headers, persons=len(people))


def words_of_lines(path: Path, fields: Sequence[str]) -> Iterator[list[str]]:
    """The words of each line, exactly those of its fields: a stray word moves all behind it."""
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeError):
        raise BadRecords(f"{path} cannot be read; a .bed needs its .bim and its .fam beside it") from None
    for number, line in enumerate(lines, 1):
        words = line.split()
        if len(words) != len(fields):
            raise BadRecords(f"{path}, line {number}: a line says {', '.join(fields)}")
        yield words


def _check_size(path: Path, persons: int, variants: int) -> None:
    """Insist that a .bed is one, and as long as the lists say: else each genotype would be another's."""
    try:
        with path.open("rb") as file:
            begins, size = file.read(len(MAGIC)), path.stat().st_size
    except OSError as problem:
        raise BadRecords(f"cannot read {path}: {problem.strerror}") from None
    if begins != MAGIC:
        raise BadRecords(f"{path} is no .bed of PLINK 1 that is kept variant by variant; convert it")
    if size != len(MAGIC) + variants * -(-persons // IN_BYTE):
        raise BadRecords(
            f"{path} does not have as many genotypes as its .bim has variants and its .fam persons; write "
            "all three anew"
        )
