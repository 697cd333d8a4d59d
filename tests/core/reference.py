"""The answer to each query, record by record, in plain Python numbers. Sums, norms and decisions are Python
integers without bound. Where the definition lets floats propose how far a record is shortened, the same IEEE
operations are written out one by one; every float that enters them is an integer below 2**53, so there is
nothing left for a library to choose."""

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


def answer(rows: Iterable[Sequence[int]], query: q.Query) -> list[int]:
    """The sum of `contribution` over `rows`."""
    total = [0] * query.length
    for row in rows:
        total = [left + right for left, right in zip(total, contribution(row, query), strict=True)]
    return total


def contribution(row: Sequence[int], query: q.Query) -> list[int]:
    """One record's part of the answer."""
    match query:
        case q.Count():
            return [1]
        case q.RowNorms() | q.RadiusSearch():
            square = _square(_centred(row, query.centre.tolist()))
            return _one_hot(sum(edge * edge <= square for edge in query.edges.tolist()), query.length)
        case q.ClippedSum():
            z = _centred(row, query.centre.tolist())
            t = _weight(_square(z), query.radius)
            return [t * value for value in z]
        case q.ColumnHistograms():
            return [one for x in row for one in _one_hot((int(x) + 4096 + 64) // 128, 65)]
        case q.ColumnMoments():
            squares = [round(Fraction(int(x) ** 2, 2**10)) for x in row]  # halves go to the even one
            vector = squares + [round(Fraction(int(x), 2)) for x in row]
            return [_weight(_square(vector), query.radius) * value for value in vector]
        case q.SquaredNormSum():
            return [min(_square(_centred(row, query.centre.tolist())), query.radius**2)]
        case q.Gram() | q.Spectrum() | q.Eigenvectors() | q.Subspace():
            return _gram(_clipped(_centred(row, query.centre.tolist()), query.radius))
        case q.GradientNorms():
            norm = _projected(row, query.spec).norm() * 2.0**query.spec.shift
            return _one_hot(sum(edge <= norm for edge in query.edges.tolist()), query.length)
        case q.CoordinateHistograms():
            bins = [value // query.width + query.half for value in _whole(row, query.spec)]
            last = 2 * query.half - 1
            return [v for b in bins for v in _one_hot(min(max(b, 0), last), last + 1)]
        case q.CoordinateClippedSum():
            off = [g - m for g, m in zip(_whole(row, query.spec), query.middles.tolist(), strict=True)]
            return [max(-h, min(h, v)) for v, h in zip(off, query.halves.tolist(), strict=True)]
        case q.Gradient():
            return _gradient(_projected(row, query.spec), query.radius)
        case q.CrossNorms():
            norm = beside(row, query.spec).norm()
            return _one_hot(sum(edge <= norm for edge in query.edges.tolist()), query.length)
        case q.CrossCovariance():
            return _gradient(beside(row, query.spec), query.radius)
        case _:
            raise AssertionError("what groups of records say is defined in the tests of its own kind")


def _centred(row: Sequence[int], centre: Sequence[int]) -> list[int]:
    return [int(value) - middle for value, middle in zip(row, centre, strict=True)]


def _nearest(above: int, below: int) -> int:
    """The nearest whole number to a fraction; of two, the even one."""
    whole, rest = divmod(above, below)
    return whole + (2 * rest > below or (2 * rest == below and whole % 2 == 1))


def _square(vector: Iterable[int]) -> int:
    return sum(value * value for value in vector)


def _one_hot(position: int, length: int) -> list[int]:
    return [int(i == position) for i in range(length)]


def _weight(square: int, radius: int) -> int:
    norm = math.sqrt(square)
    t = math.floor(WEIGHT * (1.0 if norm <= radius else radius / norm))
    return t if t * t * square <= (WEIGHT * radius) ** 2 else 0


def _clipped(z: list[int], radius: int) -> list[int]:
    square = _square(z)
    if square <= radius * radius:
        return z
    factor = radius / math.sqrt(square)
    cut = [math.trunc(value * factor) for value in z]
    return cut if _square(cut) <= radius * radius else [0] * len(z)


def _gram(z: list[int]) -> list[int]:
    d = len(z)
    return [v * v for v in z] + [z[i] * z[j] for i in range(d) for j in range(i + 1, d)]


def _columns_times(z: list[int], matrix: list[list[int]]) -> list[int]:
    return [sum(v * line[j] for v, line in zip(z, matrix, strict=True)) for j in range(len(matrix[0]))]


def _whole(row: Sequence[int], field: q.GradientSpec) -> list[int]:
    """floor(z (z . w) / 2**shift) for the field's one direction."""
    z = _centred(row, field.centre.tolist())
    along = sum(v * w for v, (w,) in zip(z, field.directions.tolist(), strict=True))
    return [v * along >> field.shift for v in z]


def _projected(row: Sequence[int], field: q.GradientSpec) -> _Projected:
    """A record and its coordinates along the directions."""
    z = _centred(row, field.centre.tolist())
    a = [v * 2.0**-field.shift for v in _columns_times(z, field.directions.tolist())]
    return _Projected(z, a, field.offset.tolist())


def beside(row: Sequence[int], spec: q.CrossSpec) -> _Projected:
    """Rest of a record beside the leading directions, in z's place, and its part along them."""
    z, scales = _centred(row, spec.centre.tolist()), spec.scales.tolist()
    directions: list[list[int]] = spec.directions.tolist()
    y = _columns_times(z, directions)
    taken = [2**10] * len(scales) + [2**10 - one for one in spec.retained.tolist()]
    c = [_nearest(w * v, 2**22) for w, v in zip(taken, y, strict=True)]
    less = [sum(v * u for v, u in zip(c, line, strict=True)) for line in directions]
    rest = [_nearest(v * 2**28 - one, 2**28) for v, one in zip(z, less, strict=True)]
    a = [v * one * 2.0**-spec.shift for v, one in zip(y, scales, strict=False)]
    return _Projected(rest, a, [[0] * len(a) for _ in rest])


class _Projected:
    """A record's z, z W and z pull, all exact."""

    def __init__(self, z: list[int], a: list[float], offset: list[list[int]]) -> None:
        self.z, self.a, self.offset = z, a, offset
        self.pulled = _columns_times(z, offset)
        self.pull2 = _square(v for line in offset for v in line)

    def norm(self) -> float:
        """||z a^T - OFFSET_STEPS pull||_F in floats, in the order the definition gives."""
        square, length = _float_dot(self.a, self.a), math.sqrt(_square(self.z))
        if not self.pull2:
            return (abs(self.a[0]) if len(self.a) == 1 else math.sqrt(square)) * length
        square = square * length * length
        square -= 2.0 * OFFSET_STEPS * _float_dot(self.a, [float(v) for v in self.pulled])
        square += float(OFFSET_STEPS * OFFSET_STEPS) * self.pull2
        return math.sqrt(max(square, 0.0))


def _float_dot(left: list[float], right: list[float]) -> float:
    out = left[0] * right[0]
    for a, b in zip(left[1:], right[1:], strict=True):
        out += a * b
    return out


def _gradient(record: _Projected, radius: int) -> list[int]:
    norm = record.norm()
    space = radius - math.sqrt(len(record.a)) * math.sqrt(_square(record.z))
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
    return out if _square(out) <= radius * radius else [0] * len(out)
