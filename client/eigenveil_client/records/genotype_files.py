"""Files of genotypes: PLINK 1, VCF-Zarr, and the lists of variants in both.

PLINK 1 is a .bed of genotypes, a .bim that lists its variants and a .fam that lists its persons. A line of a
.bim names the alleles A1, which a .bed counts, and A2: a person with x of A1 has 2 - x of A2.

VCF-Zarr (bio2zarr, sgkit) is a Zarr group:

    sample_id (samples), variant_id (variants), variant_allele (variants, alleles; "" where there are fewer)
    call_genotype (variants, samples, 2)   two alleles by their number, negative where one is not known

A column counts an allele among the two; their order (phase) is ignored. A call is missing if one of its
alleles is unknown or not in the list."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.numerics.encoding import IntArray
from eigenveil_client.records.genotype_table import MISSING, Alleles, Counts, header
from eigenveil_client.records.summary import VariantList
from eigenveil_client.records.tables.batches import whole_chunks
from eigenveil_client.records.tables.source import LISTS, BadRecords, digest
from eigenveil_common.command import require_extra

MAGIC = bytes([0x6C, 0x1B, 0x01])  # the last byte: variant-major
IN_BYTE = 4  # persons
VARIANTS_AT_ONCE = 64  # variants processed while they are in the cache
BIM_ENDING = LISTS[0]
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
        indices = np.arange(len(self.headers), dtype=np.int64)
        return Alleles(variant=indices // 2, allele=indices % 2)

    @property
    def at_once(self) -> int:
        return IN_BYTE

    def counts(self, here: slice, columns: Alleles) -> Counts:
        # given these numbers, it does not read the lists again; they were checked against the file's length
        variants = len(self.headers) // 2
        with _library()(self.path, iid_count=self.persons, sid_count=variants, skip_format_check=True) as bed:
            counts: Counts = bed.read(index=np.s_[here, columns.variant], dtype="int8", order="F").T
        for start in range(0, len(counts), VARIANTS_AT_ONCE):
            some_columns = slice(start, start + VARIANTS_AT_ONCE)
            some, other = counts[some_columns], columns.allele[some_columns] == 1
            missing = some < 0  # the library's value for a missing genotype
            np.subtract(2, some, out=some, where=other[:, None])
            np.copyto(some, MISSING, where=missing)
        return counts

    def digest(self) -> bytes:
        return digest(self.path, *map(self.path.with_suffix, LISTS))


def _library() -> Any:
    with require_extra("genotypes"):  # only sites with genotypes have this library
        from bed_reader import open_bed
    return open_bed


def plink_matrix(path: Path) -> PlinkMatrix:
    """Open a .bed with its .bim and .fam."""
    _library()  # a site without the library should not start
    bim, fam = map(path.with_suffix, LISTS)
    people = list(read_fields(fam, FAM))
    headers = tuple(header(one, allele) for _, one, _, _, *both in read_fields(bim, BIM) for allele in both)
    names = {"iid": [iid for _, iid, *_ in people], "fid": [fid for fid, *_ in people]}
    _check_size(path, len(people), len(headers) // 2)
    return PlinkMatrix(path=path, names=names, headers=headers, persons=len(people))


def read_fields(path: Path, fields: Sequence[str]) -> Iterator[list[str]]:
    """Yield the values of each line, exactly one for each field: a stray one would shift the rest."""
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeError):
        raise BadRecords(f"{path} cannot be read. A .bed needs its .bim and its .fam beside it") from None
    for number, line in enumerate(lines, 1):
        values = line.split()
        if len(values) != len(fields):
            raise BadRecords(f"{path}, line {number}: a line must have the values {', '.join(fields)}")
        yield values


def _check_size(path: Path, persons: int, variants: int) -> None:
    """Raise an error if a file is not a .bed, or its length contradicts its lists."""
    try:
        with path.open("rb") as file:
            begins, size = file.read(len(MAGIC)), path.stat().st_size
    except OSError as problem:
        raise BadRecords(f"cannot read {path}: {problem.strerror}") from None
    if begins != MAGIC:
        raise BadRecords(f"{path} is not a variant-major .bed of PLINK 1. Convert it")
    if size != len(MAGIC) + variants * -(-persons // IN_BYTE):
        raise BadRecords(
            f"{path} does not have the number of genotypes that its .bim and its .fam state. "
            "Export all three again"
        )


ZARR = (".zarr", ".vcz")
CALLS, SAMPLES, VARIANTS, ALLELES = "call_genotype", "sample_id", "variant_id", "variant_allele"
DIPLOID = 2
CALLS_AT_ONCE = 2**24
MOST_CHUNK, MOST_LIST = 2**29, 2**30  # bytes, in memory


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ZarrMatrix:
    """The genotypes of a group. Shape: known (variants,), the number of alleles of each variant."""

    path: Path
    calls: Any  # a zarr.Array
    names: Mapping[str, Sequence[str]]
    headers: tuple[str, ...]
    alleles: Alleles
    known: IntArray

    @property
    def persons(self) -> int:
        return int(self.calls.shape[1])

    @property
    def at_once(self) -> int:
        return int(self.calls.chunks[1])

    def counts(self, here: slice, columns: Alleles) -> Counts:
        out = np.empty((len(columns), here.stop - here.start), dtype=np.int8)
        at_once = max(1, CALLS_AT_ONCE // (DIPLOID * (here.stop - here.start)))
        together = whole_chunks(at_once, self.calls.chunks[0])
        order = np.argsort(columns.variant, kind="stable").astype(np.int64)
        for start in range(0, len(order), together):
            some = columns.only(order[start : start + together])
            calls = self._calls(some.variant, here)
            out[order[start : start + together]] = _counted(calls, some.allele, self.known[some.variant])
        return out

    def _calls(self, variants: IntArray, here: slice) -> Any:
        """Return the calls of these variants. Shape: variants (m,), ascending -> (m, persons, 2)."""
        first, last = int(variants[0]), int(variants[-1])
        if len(variants) > (last - first) // 2:  # most of them: read whole chunks
            return self.calls[first : last + 1, here][variants - first]
        rows, position = np.unique(variants, return_inverse=True)
        return self.calls.oindex[rows, here][position]

    def digest(self) -> bytes:
        """Return the digest of every file of the group, and of their names."""
        found = sorted(path for path in self.path.rglob("*") if path.is_file())
        names = "\0".join(path.relative_to(self.path).as_posix() for path in found)
        return digest(*found, extra=names.encode())


def _counted(calls: Any, allele: IntArray, known: IntArray) -> Counts:
    """Count alleles. Shape: calls (m, persons, 2), allele and known (m,) -> (m, persons)."""
    counts = np.empty(calls.shape[:2], dtype=np.int8)
    for start in range(0, len(calls), VARIANTS_AT_ONCE):
        here = slice(start, start + VARIANTS_AT_ONCE)
        one, other = np.moveaxis(calls[here], 2, 0)
        what, many = allele[here, None], known[here, None]
        counts[here] = (one == what).view(np.int8) + (other == what).view(np.int8)
        unknown = (one < 0) | (other < 0) | (one >= many) | (other >= many)
        np.copyto(counts[here], MISSING, where=unknown)
    return counts


def zarr_matrix(path: Path) -> ZarrMatrix:
    """Open a group of genotypes in a folder."""
    with require_extra("genotypes"):  # only sites with genotypes have this library
        import zarr
    try:
        group = zarr.open_group(str(path), mode="r")
        members = (group.get(name) for name in (CALLS, SAMPLES, VARIANTS, ALLELES))
        arrays: list[Any] = [one for one in members if isinstance(one, zarr.Array)]
        _check_sizes(path, arrays)
        lists = [np.asarray(one[...]).astype(str) for one in arrays[1:]]
    except BadRecords:
        raise
    except Exception:  # noqa: BLE001 - codecs and stores raise any error
        raise BadRecords(f"{path} cannot be read as a Zarr group. Check that it is complete") from None
    if len(arrays) < 4 or not _fit(*arrays[:1], *lists):
        raise BadRecords(
            f"{path} is not in VCF-Zarr layout: {CALLS} (variants, samples, 2) of integers, {SAMPLES}, "
            f"{VARIANTS} and {ALLELES} (variants, alleles)"
        )
    calls = arrays[0]
    if int(calls.fill_value or 0) >= 0 and calls.nchunks_initialized < calls.nchunks:
        raise BadRecords(
            f"{path} lacks chunks of {CALLS}, and its fill value is a genotype, so missing chunks would "
            "count as genotypes. Copy the whole group, or export it again"
        )
    return _matrix(path, calls, *lists)


def _check_sizes(path: Path, arrays: Sequence[Any]) -> None:
    """Raise an error if chunks or lists are too large, before they are read. A group may state any shape, and
    the library reserves memory for it."""
    lists = (math.prod(one.shape) * one.dtype.itemsize for one in arrays[1:])
    chunks = (math.prod(one.chunks) * one.dtype.itemsize for one in arrays)
    if max(chunks, default=0) > MOST_CHUNK or max(lists, default=0) > MOST_LIST:
        raise BadRecords(
            f"{path} states chunks of over {MOST_CHUNK // 2**20} MiB, or lists of over {MOST_LIST // 2**20}. "
            "Export it again, in smaller chunks"
        )


def _fit(calls: Any, samples: Any, variants: Any, alleles: Any) -> bool:
    """Return True if the arrays have consistent types and shapes."""
    return (
        np.issubdtype(calls.dtype, np.signedinteger)
        and (samples.ndim, variants.ndim, alleles.ndim) == (1, 1, 2)
        and calls.shape == (len(variants), len(samples), DIPLOID)
        and len(alleles) == len(variants)
    )


def _matrix(path: Path, calls: Any, samples: Any, variants: Any, alleles: Any) -> ZarrMatrix:
    variant, allele = np.nonzero(alleles != "")
    return ZarrMatrix(
        path=path,
        calls=calls,
        names={"iid": samples.tolist()},
        headers=tuple(map(header, variants[variant].tolist(), alleles[variant, allele].tolist())),
        alleles=Alleles(variant=variant.astype(np.int64), allele=allele.astype(np.int64)),
        known=((alleles != "") * np.arange(1, alleles.shape[1] + 1)).max(axis=1, initial=0).astype(np.int64),
    )


EITHER_STRAND = ({"A", "T"}, {"C", "G"})
NO_ALLELE = {"0", ".", ""}


def list_variants(path: Path) -> VariantList:
    """List the variants of a .bim by their A1 allele, or those of a VCF-Zarr group by their first
    alternate."""
    found = _variants(path)
    usable = [
        (name, counted)
        for name, counted, other in found
        if (both := {counted.upper(), other.upper()}) not in EITHER_STRAND and not both & NO_ALLELE
    ]
    twice = [name for name, times in Counter(name for name, _ in usable).items() if times > 1]
    if twice:
        names = ", ".join(twice[:3])
        raise BadRecords(f"{path} repeats {len(twice)} names of variants ({names}). Give each its own")
    return VariantList(columns=tuple(header(*one) for one in usable), left_out=len(found) - len(usable))


def _variants(path: Path) -> list[tuple[str, str, str]]:
    """Return the name of each variant, the allele that is counted, and the other."""
    if path.suffix.lower() == BIM_ENDING:
        return [(values[1], values[4], values[5]) for values in read_fields(path, BIM)]
    if path.suffix.lower() not in ZARR:
        known = f"{BIM_ENDING} or {', '.join(ZARR)}"
        raise BadRecords(f"{path}: variants are read from {known}, not {path.suffix!r}")
    group = zarr_matrix(path)
    alleles: dict[int, list[tuple[str, str]]] = {}
    for variant, column in zip(group.alleles.variant.tolist(), group.headers, strict=True):
        name, _, allele = column.rpartition("_")
        alleles.setdefault(variant, []).append((name, allele))
    return [(of[0][0], of[1][1], of[0][1]) for of in alleles.values() if len(of) > 1]
