"""Prior of a study: axes and variances that are public or were released before, and their form in a plan."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING

from eigenveil.study.checks import coerce_fields, need
from eigenveil.study.scaling import Scaling

# numpy is imported in functions: few studies have a prior, and commands without one start faster.
if TYPE_CHECKING:
    from eigenveil.numerics.encoding import FloatArray

MOST_AXES = 64
MOST_ENTRIES = 2**16  # of all axes: 175 kB in a plan
AXIS_STEPS = 2**14  # grid steps of an entry of 1
DIGEST = re.compile(r"[0-9a-f]{64}")
ORTHONORMAL = 1e-3  # largest deviation of a product of two axes from 0 or 1


class PriorSource(Enum):
    """Kind of file that a prior was made from: `rows` and `loadings` are public, by the analyst's statement;
    a `release` was released before."""

    ROWS = "rows"
    LOADINGS = "loadings"
    RELEASE = "release"


def axes_in_plan(d: int) -> int:
    """Return the most axes of a prior of d columns that a plan carries."""
    return min(d, MOST_AXES, max(MOST_ENTRIES // d, 1))


def encode_axes(axes: FloatArray) -> str:
    """Return axes as text: base64 of 16-bit integers, axis by axis. Shape: (m, d)."""
    import numpy as np

    whole = np.rint(axes * AXIS_STEPS).astype("<i2")
    return base64.b64encode(whole.tobytes()).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Content of a plan about a prior. It has no rows: m axes, the `variances` along them (falling), and
    `level`, the variance along each other direction. Variances are relative to each other, and axes refer to
    the columns of the study in its `scaling`.

    `sha256` is the digest of the file, or of rows in memory as 64-bit floats. `signer` is the key that signed
    the release that it was made from, and `shared_sites` are sites which that release and the study have in
    common: the same persons may be in both.

    Raises:
        RequestError: code `bad-study`: a value is invalid, or the axes are not orthonormal."""

    source: PriorSource
    sha256: str
    scaling: Scaling
    variances: tuple[float, ...]
    level: float
    axes: str
    signer: str = ""
    shared_sites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        coerce_fields(self)
        need(DIGEST.fullmatch(self.sha256) is not None, "prior: sha256 must be 64 hexadecimal digits")
        released = self.source is PriorSource.RELEASE
        need(
            bool(self.signer) is released and (not released or DIGEST.fullmatch(self.signer) is not None),
            "prior: a release has a signer, 64 hexadecimal digits, and no other source has one",
        )
        need(released or not self.shared_sites, "prior: only a release can have shared sites")
        numbers = (*self.variances, self.level)
        need(
            bool(self.variances) and all(math.isfinite(one) and one >= 0 for one in numbers),
            "prior: variances must be at least one, and all numbers of 0 or more",
        )
        falling = all(one >= other for one, other in pairwise(numbers))
        need(falling and numbers[0] > 0, "prior: variances must fall, from above 0 to at least the level")

    def directions(self, d: int) -> FloatArray:
        """Return the axes of d columns, orthonormal up to rounding. Shape: -> (m, d). Raises RequestError:
        code `bad-study`, they have another size or are not orthonormal."""
        import numpy as np

        m = len(self.variances)
        need(m <= axes_in_plan(d), f"prior: {m} axes of {d} columns are too many; at most {axes_in_plan(d)}")
        try:
            data = base64.b64decode(self.axes.encode("ascii"), validate=True)
        except (UnicodeEncodeError, binascii.Error):
            data = b""
        need(len(data) == 2 * m * d, f"prior: axes must be {m} times {d} numbers of 16 bits in base64")
        axes: FloatArray = np.frombuffer(data, dtype="<i2").reshape(m, d) / AXIS_STEPS
        off = float(np.abs(axes @ axes.T - np.eye(m)).max())
        most = max(ORTHONORMAL, math.sqrt(d) / AXIS_STEPS)
        need(off <= most, f"prior: axes are not orthonormal; a product of two is off by {off:.2g}")
        return axes

    def check(self, d: int, k: int, scaling: Scaling | None, sites: Collection[str]) -> None:
        """Check that it fits a study of d columns and k components. Raises RequestError: code `bad-study`."""
        self.directions(d)
        stated = "" if scaling is None else scaling.value
        need(
            self.scaling is scaling,
            f'prior: it is for scaling = "{self.scaling.value}", and the study has "{stated}"; make it from '
            "a file for this scaling",
        )
        need(k < d, "prior: a study of as many components as columns has no use for one; leave it out")
        unknown = [name for name in self.shared_sites if name not in sites]
        need(not unknown, f"prior: shared sites are not invited: {', '.join(unknown)}")

    @property
    def statement(self) -> str:
        """Clause about its origin, which the analyst signs with the study."""
        if self.source is PriorSource.RELEASE:
            return f"an earlier release, signed by the key {self.signer[:16]}"
        return f"public {self.source.value}, as the analyst states"

    @property
    def text(self) -> str:
        """A clause about it, for the people who decide about a study."""
        shared = f"; sites in both: {', '.join(self.shared_sites)}" if self.shared_sites else ""
        return f"{self.statement} (file {self.sha256[:12]}, {len(self.variances)} axes{shared})"

    @property
    def warning(self) -> str:
        """Sentence for those who plan a study or decide about it: no guarantee covers a prior."""
        return (
            f"the study starts from a prior: {self.text}. It is in the plan and in the release, and no "
            "guarantee covers it; state only what is public or was released before"
        )
