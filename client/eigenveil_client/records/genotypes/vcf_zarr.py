"""A Zarr group of genotypes, as VCF-Zarr (bio2zarr, sgkit) lays it out:

    sample_id (samples), variant_id (variants), variant_allele (variants, alleles; "" where there are fewer)
    call_genotype (variants, samples, 2)   two alleles by their number, negative where one is not known

A column counts an allele among the two: in which order they stand, phased or not, is nobody's business here.
A call of which one allele is not known is missing, like one that names an allele which there is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.numerics.encoding import IntArray
from eigenveil_client.records.genotypes.alleles import MISSING, Alleles, Counts, header
from eigenveil_client.records.tables.batches import whole_chunks
from eigenveil_client.records.tables.digest import digest
from eigenveil_client.records.tables.table import BadRecords
from eigenveil_common.command import needing

ZARR = (".zarr", ".vcz")
CALLS, SAMPLES, VARIANTS, ALLELES = "call_genotype", "sample_id", "variant_id", "variant_allele"
DIPLOID = 2
CALLS_AT_ONCE = 2**24
MOST_CHUNK, MOST_LIST = 2**29, 2**30  # bytes, as they are in memory
TOGETHER = 64  # variants that are gone over while they are in the cache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ZarrMatrix:
    """The genotypes of a group. Shape: known (variants,), how many alleles each variant has."""

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
        """Shape: variants (m,), rising -> (m, persons, 2)."""
        first, last = int(variants[0]), int(variants[-1])
        if len(variants) > (last - first) // 2:  # about all: pieces as they lie in the file
            return self.calls[first : last + 1, here][variants - first]
        rows, place = np.unique(variants, return_inverse=True)
        return self.calls.oindex[rows, here][place]

    def digest(self) -> bytes:
        """Of every file of the group, and of what they are called."""
        found = sorted(path for path in self.path.rglob("*") if path.is_file())
        names = "\0".join(path.relative_to(self.path).as_posix() for path in found)
        return digest(*found, said=names.encode())


def _counted(calls: Any, allele: IntArray, known: IntArray) -> Counts:
    """Shape: calls (m, persons, 2), allele and known (m,) -> (m, persons)."""
    counts = np.empty(calls.shape[:2], dtype=np.int8)
    for start in range(0, len(calls), TOGETHER):
        here = slice(start, start + TOGETHER)
        one, other = np.moveaxis(calls[here], 2, 0)
        what, many = allele[here, None], known[here, None]
        counts[here] = (one == what).view(np.int8) + (other == what).view(np.int8)
        unknown = (one < 0) | (other < 0) | (one >= many) | (other >= many)
        np.copyto(counts[here], MISSING, where=unknown)
    return counts


def zarr_matrix(path: Path) -> ZarrMatrix:
    """A group of genotypes in a folder.

    Raises:
        BadRecords: it cannot be read, or is laid out in another way.
        RequestError: code `bad-config`, the library is not installed.
    """
    with needing("genotypes"):  # a site with other records has no such library
        import zarr
    try:
        group = zarr.open_group(str(path), mode="r")
        calls, samples, variants, alleles = (group.get(one) for one in (CALLS, SAMPLES, VARIANTS, ALLELES))
        arrays = [one for one in (calls, samples, variants, alleles) if isinstance(one, zarr.Array)]
        _check_sizes(path, arrays)
        lists = [np.asarray(one[...]).astype(str) for one in arrays[1:]]
    except BadRecords:
        raise
    except Exception:  # noqa: BLE001 - codecs and stores raise all kinds
        raise BadRecords(f"{path} cannot be read as a Zarr group; check that it is there and whole") from None
    if len(arrays) < 4 or not _fit(calls, *lists):
        raise BadRecords(
            f"{path} is not laid out as VCF-Zarr: {CALLS} (variants, samples, 2) of integers, {SAMPLES}, "
            f"{VARIANTS} and {ALLELES} (variants, alleles)"
        )
    if _filled_with_genotypes(calls):
        raise BadRecords(
            f"{path} lacks chunks of {CALLS}, and its fill value is a genotype, not a missing one: it "
            "would be taken for what persons have; copy the group whole, or write it anew"
        )
    return _matrix(path, calls, *lists)


def _check_sizes(path: Path, arrays: Sequence[Any]) -> None:
    """Insist, before anything is read, that chunks and lists are as large as such ones can be: a group may
    state any shape, and a library reserves what is stated."""
    lists = (math.prod(one.shape) * one.dtype.itemsize for one in arrays[1:])
    chunks = (math.prod(one.chunks) * one.dtype.itemsize for one in arrays)
    if max(chunks, default=0) > MOST_CHUNK or max(lists, default=0) > MOST_LIST:
        raise BadRecords(
            f"{path} states chunks of over {MOST_CHUNK // 2**20} MiB, or lists of over {MOST_LIST // 2**20}; "
            "write it anew, in smaller chunks"
        )


def _filled_with_genotypes(calls: Any) -> bool:
    """Whether a chunk that is not there, lost or never written, would read as known alleles."""
    return int(calls.fill_value or 0) >= 0 and calls.nchunks_initialized < calls.nchunks


def _fit(calls: Any, samples: Any, variants: Any, alleles: Any) -> bool:
    """Whether the arrays are of one set of genotypes."""
    return (
        np.issubdtype(calls.dtype, np.signedinteger)
        and (samples.ndim, variants.ndim, alleles.ndim) == (1, 1, 2)
        and calls.shape == (len(variants), len(samples), DIPLOID)
        and len(alleles) == len(variants)
    )


def _matrix(path: Path, calls: Any, samples: Any, variants: Any, alleles: Any) -> ZarrMatrix:
    variant, allele = np.nonzero(alleles != "")
    words = alleles[variant, allele]
    return ZarrMatrix(
        path=path,
        calls=calls,
        names={"iid": samples.tolist()},
        headers=tuple(map(header, variants[variant].tolist(), words.tolist())),
        alleles=Alleles(variant=variant.astype(np.int64), allele=allele.astype(np.int64)),
        known=((alleles != "") * np.arange(1, alleles.shape[1] + 1)).max(axis=1, initial=0).astype(np.int64),
    )
