"""Genotypes as columns: one for each allele of each variant, `rs123_A`, which counts that allele in a person.

Which allele a file counts is the file's own affair, and two sites' files may count two. So there is a column
for every allele, and a study asks for one by its name: no sign hangs on how a site's file came to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from eigenveil.numerics.encoding import IntArray

Counts = NDArray[np.int8]
MISSING = -1  # in place of a count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alleles:
    """Columns by their place: number `allele` of the alleles of the file's variant `variant`.

    Shape: variant and allele (columns,).
    """

    variant: IntArray
    allele: IntArray

    def __len__(self) -> int:
        return len(self.variant)

    def only(self, places: IntArray) -> Alleles:
        """The columns at these places, in their order."""
        return Alleles(variant=self.variant[places], allele=self.allele[places])


class Matrix(Protocol):
    """Genotypes of some persons, kept in a file."""

    @property
    def persons(self) -> int:
        """How many persons there are."""

    @property
    def names(self) -> Mapping[str, Sequence[str]]:
        """What the file calls its persons: texts by what kind of a name they are."""

    @property
    def headers(self) -> tuple[str, ...]:
        """The names of the columns."""

    @property
    def alleles(self) -> Alleles:
        """What the columns count, in the same order."""

    @property
    def at_once(self) -> int:
        """The file keeps so many persons together: to read them by other numbers is slower."""

    def counts(self, here: slice, columns: Alleles) -> Counts:
        """How often persons have alleles; MISSING where that is not known. Shape: (columns, persons).

        Raises:
            Exception: whatever the library raises; nothing of it is shown, as it may quote a genotype.
        """

    def digest(self) -> bytes:
        """Of every byte of the file and of the lists beside it."""


def header(variant: str, allele: str) -> str:
    """The name of a column, as PLINK writes it: the variant, and the allele that is counted."""
    return f"{variant}_{allele}"
