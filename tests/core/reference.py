"""The arithmetic of one record's answer, of which `queries.kinds` are made, in plain Python numbers. Sums,
norms and decisions are Python integers without bound. Where the definition lets floats propose how far a
record is shortened, the same IEEE operations are written out one by one; every float that enters them is an
integer below 2**53, so there is nothing left for a library to choose."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from eigenveil import queries as q
from eigenveil.queries.limits import OFFSET_STEPS, WEIGHT


def seen(row: Sequence[int], frame: q.Frame) -> list[int]:
    """A record as a frame shows it: halves go to the even one, and what is beyond the grid to its end."""
    columns = zip(row, frame.middles.tolist(), frame.factors.tolist(), strict=True)
    shown = [round(Fraction((int(x) - middle) * factor, 2**20)) for x, middle, factor in columns]
    return [min(max(x, -4096), 4096) for x in shown]


def centred(row: Sequence[int], centre: Sequence[int]) -> list[int]:
    return [int(value) - middle for value, middle in zip(row, centre, strict=True)]


def nearest(above: int, below: int) -> int:
    """The nearest whole number to a fraction; of two, the even one."""
    whole, rest = divmod(above, below)
    return whole + (2 * rest > below or (2 * rest == below and whole % 2 == 1))


def square(vector: Iterable[int]) -> int:
    return sum(value * value for value in vector)


def one_hot(position: int, length: int) -> list[int]:
    return [int(i == position) for i in range(length)]


def weight(square: int, radius: int) -> int:
    norm = math.sqrt(square)
    t = math.floor(WEIGHT * (1.0 if norm <= radius else radius / norm))
    return t if t * t * square <= (WEIGHT * radius) ** 2 else 0


def clipped(z: list[int], radius: int) -> list[int]:
    norm2 = square(z)
    if norm2 <= radius * radius:
        return z
    factor = radius / math.sqrt(norm2)
    cut = [math.trunc(value * factor) for value in z]
    return cut if square(cut) <= radius * radius else [0] * len(z)


def products(z: list[int]) -> list[int]:
    d = len(z)
    return [v * v for v in z] + [z[i] * z[j] for i in range(d) for j in range(i + 1, d)]


def _columns_times(z: list[int], matrix: list[list[int]]) -> list[int]:
    return [sum(v * line[j] for v, line in zip(z, matrix, strict=True)) for j in range(len(matrix[0]))]


def whole(row: Sequence[int], field: q.GradientSpec) -> list[int]:
    """floor(z (z . w) / 2**shift) for the field's one direction."""
    z = centred(row, field.centre.tolist())
    along = sum(v * w for v, (w,) in zip(z, field.directions.tolist(), strict=True))
    return [v * along >> field.shift for v in z]


def projected(row: Sequence[int], field: q.GradientSpec) -> _Projected:
    """A record and its coordinates along the directions."""
    z = centred(row, field.centre.tolist())
    a = [v * 2.0**-field.shift for v in _columns_times(z, field.directions.tolist())]
    return _Projected(z, a, field.offset.tolist())


def beside(row: Sequence[int], spec: q.CrossSpec) -> _Projected:
    """Rest of a record beside the leading directions, in z's place, and its part along them."""
    z, scales = centred(row, spec.centre.tolist()), spec.scales.tolist()
    directions: list[list[int]] = spec.directions.tolist()
    y = _columns_times(z, directions)
    taken = [2**10] * len(scales) + [2**10 - one for one in spec.retained.tolist()]
    c = [nearest(w * v, 2**22) for w, v in zip(taken, y, strict=True)]
    less = [sum(v * u for v, u in zip(c, line, strict=True)) for line in directions]
    fine = 2**spec.fraction_bits
    rest = [nearest(fine * (v * 2**28 - one), 2**28) for v, one in zip(z, less, strict=True)]
    a = [v * one * 2.0**-spec.shift for v, one in zip(y, scales, strict=False)]
    return _Projected(rest, a, [[0] * len(a) for _ in rest])


def unrounded_norm(row: Sequence[int], spec: q.CrossSpec) -> float:
    """Norm of a record's leading part times that of its rest before rounding, in floats, in the order of the
    definition."""
    z, directions = centred(row, spec.centre.tolist()), spec.directions.tolist()
    y = [float(one) for one in _columns_times(z, directions)]
    kept = [0.0] * spec.k + [one / 2**10 for one in spec.retained.tolist()]
    taken = _float_dot([one * ((1 - m**2) / 2.0**40) for one, m in zip(y, kept, strict=True)], y)
    a = [one * scale * 2.0**-spec.shift for one, scale in zip(y, spec.scales.tolist(), strict=False)]
    long = abs(a[0]) if len(a) == 1 else math.sqrt(_float_dot(a, a))
    return long * (math.sqrt(max(square(z) - taken, 0.0)) * 2.0**spec.fraction_bits)


class _Projected:
    """A record's z, z W and z pull, all exact."""

    def __init__(self, z: list[int], a: list[float], offset: list[list[int]]) -> None:
        self.z, self.a, self.offset = z, a, offset
        self.pulled = _columns_times(z, offset)
        self.pull2 = square(v for line in offset for v in line)

    def norm(self) -> float:
        """||z a^T - OFFSET_STEPS pull||_F in floats, in the order the definition gives."""
        norm2, length = _float_dot(self.a, self.a), math.sqrt(square(self.z))
        if not self.pull2:
            return (abs(self.a[0]) if len(self.a) == 1 else math.sqrt(norm2)) * length
        norm2 = norm2 * length * length
        norm2 -= 2.0 * OFFSET_STEPS * _float_dot(self.a, [float(v) for v in self.pulled])
        norm2 += float(OFFSET_STEPS * OFFSET_STEPS) * self.pull2
        return math.sqrt(max(norm2, 0.0))


def _float_dot(left: list[float], right: list[float]) -> float:
    out = left[0] * right[0]
    for a, b in zip(left[1:], right[1:], strict=True):
        out += a * b
    return out


def gradient(record: _Projected, radius: int) -> list[int]:
    norm = record.norm()
    space = radius - math.sqrt(len(record.a)) * math.sqrt(square(record.z))
    if record.pull2:
        space -= math.sqrt(record.pull2)
    space = max(space, 0.0)
    scale = space / max(norm, space) if max(norm, space) > 0 else 0.0
    b = [math.trunc(value * scale) for value in record.a]
    u = math.floor(OFFSET_STEPS * scale) if record.pull2 else 0
    out = [
        v * bj - u * pj
        for v, line in zip(record.z, record.offset, strict=True)
        for bj, pj in zip(b, line, strict=True)
    ]
    return out if square(out) <= radius * radius else [0] * len(out)
