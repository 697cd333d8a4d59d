"""Every kind of query, as the tests know it: an example, records that try to break its sensitivity, one
record's part of its answer, and for an additive kind a pair of data sets for the audit. `test_conformance`
and the audits run all of it, so that a new kind is tested by its rows here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from eigenveil import queries as q
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.query import NoiseDistribution
from eigenveil.queries.gradients import pass_key
from eigenveil.queries.limits import GRADIENT_LIMIT, OFFSET_STEPS, row_norm_limit
from eigenveil.queries.papers.fingerprints import Cells, Pool, Subsamples
from eigenveil.queries.papers.trusted import CAUCHY
from eigenveil.study.grid import GridRows, S
from tests.core import reference as r
from tests.core.records import Case, hostile_rows
from tests.support import a_cross, a_field

# ------------------------------------------------------------------ examples

KEY, ORIGIN = np.arange(4), np.zeros(3, dtype=np.int64)
BLOCKS = Subsamples(centre=ORIGIN, rank=2, count=6, key=KEY)
CELLS = Cells(centre=ORIGIN, rank=2, count=6, key=KEY, points=2, width=2**30)
POOL = Pool(centre=ORIGIN, rank=1, max_records=1000, truncated=False, key=KEY)
SLOTS = 8192


def a_batch(digest: str, batches: int, index: int = 0) -> q.Batch:
    return q.Batch(first_round=0, index=index, batches=batches, key=pass_key(digest, 0, batches))


def every_query(d: int = 4, k: int = 2) -> dict[str, q.AdditiveQuery]:
    """Sums over records about `d` columns; gradients with and without offset, k = 1 and k. New ones go last:
    stored vectors count them."""
    centre = (np.arange(d) * 211) % 997 - 400
    many, one = a_field(d, k), a_field(d, 1, pulls=False)
    return {
        "count": q.Count(),
        "row-norms": q.RowNorms(centre=centre, edges=np.array([1, S // 2, S, 2 * S])),
        "clipped-sum": q.ClippedSum(centre=centre, radius=S),
        "squared-norm-sum": q.SquaredNormSum(centre=centre, radius=S),
        "gram": q.Gram(centre=centre, radius=S),
        "gradient-norms": q.GradientNorms(spec=many, edges=np.array([10**6, 10**8, 10**10])),
        "gradient-norms, k = 1": q.GradientNorms(spec=one, edges=np.array([10**6, 10**9])),
        "gradient": q.Gradient(spec=many, radius=2**27),
        "gradient, k = 1, no pull": q.Gradient(spec=one, radius=2**26),
        "gradient, k, no pull": q.Gradient(spec=a_field(d, k, pulls=False), radius=2**26),
        "gradient, k = 1": q.Gradient(spec=a_field(d, 1), radius=2**27),
        "coordinates": q.CoordinateHistograms(spec=one, width=2**12, half=6),
        "coordinate-clipped-sum": q.CoordinateClippedSum(
            spec=one, middles=np.arange(d) * 999 - 1500, halves=np.arange(d) * 2**14
        ),
        "cross-norms": q.CrossNorms(spec=a_cross(d, k), edges=np.array([10**5, 10**7])),
        "cross-covariance": q.CrossCovariance(spec=a_cross(d, k), radius=2**24),
        "column-histograms": q.ColumnHistograms(columns=d),
        "column-moments": q.ColumnMoments(columns=d, radius=2**12),
        "cross-norms, fractions": q.CrossNorms(spec=a_cross(d, k, 5), edges=np.array([10**5, 10**7])),
        "cross-covariance, fractions": q.CrossCovariance(spec=a_cross(d, k, 5), radius=2**24),
    }


def covariance_queries(d: int = 4) -> dict[str, q.Spectrum | q.Eigenvectors | q.Subspace | q.RadiusSearch]:
    """Queries about `d` columns whose mechanism needs an exact sum over records."""
    centre = (np.arange(d) * 211) % 997 - 400
    edges = np.array([1, S // 2, S, 2 * S])
    return {
        "spectrum": q.Spectrum(centre=centre, radius=S, records=1000),
        "subspace": q.Subspace(centre=centre, radius=S, records=1000, count=min(2, d), mechanism=CAUCHY),
        "eigenvectors": q.Eigenvectors(centre=centre, radius=S, records=1000, count=min(2, d)),
        "radius-search": q.RadiusSearch(centre=centre, edges=edges, limits=edges * 0 + 5),
    }


QUERIES: dict[str, q.Query] = {
    **every_query(),
    **covariance_queries(),
    "gram, flat": q.Gram(centre=ORIGIN, radius=1000, flat=True),
    "eigenvalue-votes": q.EigenvalueVotes(
        spec=a_field(4, 1, pulls=False), edges=np.array([10, 1000]), subsets=5
    ),
    "block-ranks": q.BlockRanks(subsamples=BLOCKS),
    "span-votes": q.SpanVotes(subsamples=BLOCKS),
    "cell-votes": q.CellVotes(cells=CELLS, min_votes=1),
    "rank-votes": q.RankVotes(cells=CELLS),
    "span-gap": q.SpanGap(pool=POOL),
    "preimage": q.Preimage(fingerprint=KEY, voting_sites=frozen([0]), subsamples=BLOCKS),
    "preimage, cell": q.Preimage(fingerprint=KEY, voting_sites=frozen([0]), cells=CELLS),
    "preimage, pool": q.Preimage(fingerprint=KEY, voting_sites=frozen([0]), pool=POOL),
    "shuffled-record": q.ShuffledRecord(spec=a_field(4, 2), radius=2**20, batch=a_batch("", SLOTS)),
}
SUMS = {name: query for name, query in QUERIES.items() if isinstance(query, q.AdditiveQuery)}

# ------------------------------------------------------------------ one record's part of the answer


def answer(records: Iterable[Sequence[int]], query: q.Query) -> list[int]:
    """The sum of `contribution` over `records`."""
    total = [0] * query.length
    for row in records:
        total = [left + right for left, right in zip(total, contribution(row, query), strict=True)]
    return total


def contribution(row: Sequence[int], query: q.Query) -> list[int]:
    """One record's part of the answer."""
    match query:
        case q.Count():
            return [1]
        case q.RowNorms() | q.RadiusSearch():
            norm2 = r.square(r.centred(row, query.centre.tolist()))
            return r.one_hot(sum(edge * edge <= norm2 for edge in query.edges.tolist()), query.length)
        case q.ClippedSum():
            z = r.centred(row, query.centre.tolist())
            t = r.weight(r.square(z), query.radius)
            return [t * value for value in z]
        case q.ColumnHistograms():
            return [one for x in row for one in r.one_hot((int(x) + 4096 + 64) // 128, 65)]
        case q.ColumnMoments():
            squares = [round(Fraction(int(x) ** 2, 2**10)) for x in row]  # halves go to the even one
            vector = squares + [round(Fraction(int(x), 2)) for x in row]
            return [r.weight(r.square(vector), query.radius) * value for value in vector]
        case q.SquaredNormSum():
            return [min(r.square(r.centred(row, query.centre.tolist())), query.radius**2)]
        case q.Gram() | q.Spectrum() | q.Eigenvectors() | q.Subspace():
            return r.products(r.clipped(r.centred(row, query.centre.tolist()), query.radius))
        case q.GradientNorms():
            norm = r.projected(row, query.spec).norm() * 2.0**query.spec.shift
            return r.one_hot(sum(edge <= norm for edge in query.edges.tolist()), query.length)
        case q.CoordinateHistograms():
            bins = [value // query.width + query.half for value in r.whole(row, query.spec)]
            last = 2 * query.half - 1
            return [v for b in bins for v in r.one_hot(min(max(b, 0), last), last + 1)]
        case q.CoordinateClippedSum():
            off = [g - m for g, m in zip(r.whole(row, query.spec), query.middles.tolist(), strict=True)]
            return [max(-h, min(h, v)) for v, h in zip(off, query.halves.tolist(), strict=True)]
        case q.Gradient():
            return r.gradient(r.projected(row, query.spec), query.radius)
        case q.CrossNorms():
            spec = query.spec
            norm = r.unrounded_norm(row, spec) if spec.fraction_bits else r.beside(row, spec).norm()
            return r.one_hot(sum(edge <= norm for edge in query.edges.tolist()), query.length)
        case q.CrossCovariance():
            return r.gradient(r.beside(row, query.spec), query.radius)
        case _:
            raise AssertionError("what groups of records say is defined in the tests of its own kind")


# ------------------------------------------------------------------ neighbours that reach the bound

SHAPES = [(1, "middle"), (2, "middle"), (3, "corner"), (5, "random"), (8, "middle")]
RADII = (1, 5 * 117, 4000, S)
PAIRS = 10_000  # that are tried at least, of each kind and under either relation
ZERO = frozen([0, 0])


def centre_of(d: int, where: str) -> IntArray:
    match where:
        case "middle":
            return frozen(np.zeros(d, dtype=np.int64))
        case "corner":
            return frozen(np.full(d, -S))
        case _:
            return frozen(np.random.default_rng(d).integers(-S, S, d, endpoint=True))


def tried(queries: Iterable[Any], n: int, radius: int | None = None) -> list[Case]:
    """Each query with `n` hostile records of this radius, or its own, about its own centre."""
    out = []
    for seed, query in enumerate(queries):
        centre, d = q.centre_of(query), q.columns_of(query) or 2
        about = centre_of(d, "middle") if centre is None else centre
        out.append(Case(query=query, rows=hostile_rows(n, about, radius or query.radius, seed)))
    return out


def row_cases(kind: type[q.ClippedSum | q.SquaredNormSum | q.Gram]) -> list[Case]:
    """The kinds that clip rows, at every shape and radius."""
    return tried(
        (
            kind(centre=centre_of(d, where), radius=radius or row_norm_limit(d))
            for (d, where), radius in product(SHAPES, (*RADII, None))
        ),
        400,
    )


def field_of(d: int, k: int = 1, pull: int = 0, shift: int = 10, where: str = "middle") -> q.GradientSpec:
    """Directions along the first k axes, at their limit: `hostile_rows` know the worst pairs. Pull alike."""
    directions, pulls = np.zeros((d, k), dtype=np.int64), np.zeros((d, k), dtype=np.int64)
    directions[np.arange(k), np.arange(k)] = 2**20
    pulls[0, 0] = pull
    return q.GradientSpec(centre=centre_of(d, where), directions=directions, offset=pulls, shift=shift)


def random_field(d: int, k: int, pull: int, shift: int) -> q.GradientSpec:
    rng = np.random.default_rng(d + k)
    return q.GradientSpec(
        centre=centre_of(d, "random"),
        directions=rng.integers(-(2**20), 2**20, (d, k), endpoint=True),
        offset=rng.integers(-pull, pull, (d, k), endpoint=True),
        shift=shift,
    )


def gradient_cases(k: int, *, pulls: bool) -> list[Case]:
    """Radii from the limit down to one at which every record is dropped; pulls close to each radius."""
    queries = []
    for d, radius in product((2, 3, 8), (GRADIENT_LIMIT, 2**24, 2**13, 7)):
        pull = max(1, (radius - radius // 500) // OFFSET_STEPS) if pulls else 0
        fields = field_of(d, k, pull, 0), random_field(d, k, pull // (d * k), 10)
        queries += [q.Gradient(spec=field, radius=radius) for field in fields]
    return tried(queries, 450, S)


def gradient_norm_cases() -> list[Case]:
    """An edge is the norm of a record at the end of the first axis."""
    edges = frozen([1, 2**30, 2**40, 2**20 * S**2, 2**46, 2**60])
    fields = [field_of(3, 2, 900, 8, "corner"), random_field(4, 1, 0, 0), random_field(5, 3, 50, 20)]
    fields.append(field_of(2))
    return tried((q.GradientNorms(spec=field, edges=edges) for field in fields), 3400, S)


def along_axes(d: int, k: int, shift: int, where: str = "middle") -> q.CrossSpec:
    """The first k axes lead, so that `hostile_rows` know the worst pairs; a spare one comes behind."""
    p = min(k + 1, d)
    return q.CrossSpec(
        centre=centre_of(d, where),
        directions=2**20 * np.eye(d, p, dtype=np.int64),
        scales=np.full(k, 2**10),
        retained=np.full(p - k, 700),
        shift=shift,
    )


def cross_cases(k: int) -> list[Case]:
    """Radii from the limit down to one at which every record is dropped."""
    queries = []
    for d, radius in product((3, 8), (GRADIENT_LIMIT, 2**24, 2**15, 7)):
        specs = along_axes(d, k, 12), along_axes(d, k, 40, "corner"), a_cross(d, k), a_cross(d, k, 7)
        queries += [q.CrossCovariance(spec=spec, radius=radius) for spec in specs]
    return tried(queries, 450, S)


def cross_norm_cases() -> list[Case]:
    """An edge is the norm of a record in a corner."""
    edges = frozen([1, 2**20, S**2, 2**30, 2**36, 2**60])
    specs = [along_axes(3, 2, 8, "corner"), a_cross(4, 1), a_cross(5, 3), BESIDE, a_cross(4, 1, 7)]
    return tried((q.CrossNorms(spec=spec, edges=edges) for spec in specs), 3400, S)


def moment_cases() -> list[Case]:
    """At every radius, on up to eight columns."""
    shapes = product((d for d, _ in SHAPES), (1, 117, 2**14, 2**20))
    return tried((q.ColumnMoments(columns=d, radius=radius) for d, radius in shapes), 500, 4000)


def one_direction(d: int, seed: int = 1, shift: int = 20) -> q.GradientSpec:
    rng = np.random.default_rng(seed)
    return q.GradientSpec(
        centre=rng.integers(-S // 4, S // 4, d),
        directions=rng.integers(-(2**19), 2**19, (d, 1)),
        offset=np.zeros((d, 1), dtype=np.int64),
        shift=shift,
    )


def coordinate_cases() -> list[Case]:
    shapes = enumerate(product((1, 3, 8), (1, 2**10, 2**25)))
    fields = ((one_direction(d, seed, shift=10), width) for seed, (d, width) in shapes)
    return tried(
        (q.CoordinateHistograms(spec=field, width=width, half=8) for field, width in fields), 1200, S
    )


def boxed_cases() -> list[Case]:
    """Boxes that cut off nearly all, some with a coordinate shut, one at the limit."""
    queries = []
    for seed, (d, half) in enumerate(product((1, 3, 8), (1, 2**8, GRADIENT_LIMIT))):
        field = one_direction(d, seed, shift=0 if half == GRADIENT_LIMIT else 12)
        halves = np.full(d, half)
        halves[1::3] = 0
        queries.append(q.CoordinateClippedSum(spec=field, middles=np.arange(d) - 3, halves=halves))
    return tried(queries, 1200, S)


AT_A_BIN = 64 + 31 * 128  # where a bin of a column begins
EDGES = frozen([1, 2, 4000, S, S + 1, 2 * S, 2**31 - 1])
CASES: dict[str, Callable[[], list[Case]]] = {
    "count": lambda: tried([q.Count()], PAIRS, S),
    "row-norms": lambda: tried((q.RowNorms(centre=centre_of(*s), edges=EDGES) for s in SHAPES), 2000, 4000),
    "clipped-sum": lambda: row_cases(q.ClippedSum),
    "squared-norm-sum": lambda: row_cases(q.SquaredNormSum),
    "gram": lambda: row_cases(q.Gram),
    "gradient-norms": gradient_norm_cases,
    "gradient, k = 1": lambda: gradient_cases(1, pulls=False),
    "gradient, k = 2": lambda: gradient_cases(2, pulls=False),
    "gradient, k = 1, pull": lambda: gradient_cases(1, pulls=True),
    "gradient, k = 2, pull": lambda: gradient_cases(2, pulls=True),
    "coordinates": coordinate_cases,
    "coordinate-clipped-sum": boxed_cases,
    "column-histograms": lambda: tried((q.ColumnHistograms(columns=d) for d, _ in SHAPES), 2000, AT_A_BIN),
    "column-moments": moment_cases,
    "cross-norms": cross_norm_cases,
    "cross-covariance, k = 1": lambda: cross_cases(1),
    "cross-covariance, k = 2": lambda: cross_cases(2),
}

# ------------------------------------------------------------------ audited pairs

ADD, REPLACE, LAPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE, NoiseDistribution.LAPLACE


@dataclass(frozen=True, slots=True)
class Pair:
    """Data sets without a record and with it that tell most about the noise on a query; at `sites` sites the
    same happens at each."""

    name: str
    query: q.AdditiveQuery
    neighbours: Neighbours
    data: tuple[GridRows, GridRows]
    distribution: NoiseDistribution = NoiseDistribution.GAUSSIAN
    sites: int = 1


def rows(*records: list[int]) -> GridRows:
    """Records on the grid. Shape: (n, d)."""
    return np.array(records, dtype=np.int16)


def moves(data: GridRows, record: list[int]) -> tuple[GridRows, GridRows]:
    """Data without a record and with it."""
    return data, np.concatenate([data, rows(record)])


def turns(one: list[int], other: list[int]) -> tuple[GridRows, GridRows]:
    """A record of three that is replaced."""
    return rows([5, 6], [-7, 1], one), rows([5, 6], [-7, 1], other)


FEW, FINE = rows([5, 6], [-7, 1]), 2**10  # the gradient of `field_of(d, k)` is FINE z (z_1, ..., z_k)
# A count's noise is so coarse at this price that its law on the integers is no longer nearly mu-GDP (see
# test_mu_audits), so persons who count are at many sites.
MANY = 50

SUM = q.ClippedSum(centre=ZERO, radius=S)
GRAM = q.Gram(centre=ZERO, radius=4000)
NORMS = q.RowNorms(centre=ZERO, edges=frozen([100, 1000]))
ENERGY = q.SquaredNormSum(centre=ZERO, radius=S)
GRADIENT = q.Gradient(spec=field_of(2), radius=4001 * 10 * FINE)
GRADIENTS = q.Gradient(spec=field_of(2, 2), radius=300**2 * FINE)
GRADIENT_NORMS = q.GradientNorms(spec=field_of(2), edges=frozen([2**40]))
BOXED = q.CoordinateClippedSum(spec=field_of(2), middles=frozen([5 * FINE, 0]), halves=frozen([3000, 4000]))
RANKS = q.BlockRanks(subsamples=Subsamples(centre=ZERO, rank=1, count=3, key=frozen([1, 2, 3, 4])))
BESIDE = q.CrossSpec(  # a = z_1, b = (0, z_2)
    centre=ZERO, directions=frozen([[2**20], [0]]), scales=frozen([2**10]), retained=frozen([]), shift=30
)
CROSS = q.CrossCovariance(spec=BESIDE, radius=10 * 4001)
CROSS_NORMS = q.CrossNorms(spec=BESIDE, edges=frozen([2**20]))
COUNTS, MOMENTS = q.ColumnHistograms(columns=2), q.ColumnMoments(columns=2, radius=2 * S)
LONG, SHORT = [4000, 0], [500, 0]

AUDITED = [
    Pair("count", q.Count(), ADD, moves(FEW, LONG), sites=MANY),
    Pair("row-norms", NORMS, ADD, moves(FEW, LONG), sites=MANY),
    Pair("row-norms, replaced", NORMS, REPLACE, turns(SHORT, LONG), sites=MANY),
    Pair("clipped-sum", SUM, ADD, moves(FEW, [S, 0])),
    Pair("clipped-sum, replaced", SUM, REPLACE, turns([S, 0], [-S, 0])),
    Pair("squared-norm-sum", ENERGY, ADD, moves(FEW, [S, S])),
    Pair("gram", GRAM, ADD, moves(FEW, [2400, 3200])),
    Pair("gram, replaced", GRAM, REPLACE, turns([2400, 3200], [3200, -2400])),
    Pair("gram, flat", replace(GRAM, flat=True), ADD, moves(FEW, LONG)),
    Pair("gradient", GRADIENT, ADD, moves(FEW, [10, 4000])),
    Pair("gradient, replaced", GRADIENT, REPLACE, turns([10, 4000], [10, -4000])),
    Pair("gradient, k = 2", GRADIENTS, ADD, moves(FEW, [0, 300])),
    Pair("gradient-norms", GRADIENT_NORMS, ADD, moves(FEW, LONG), sites=MANY),
    Pair("cross-covariance", CROSS, ADD, moves(FEW, [4000, 10])),
    Pair("cross-covariance, replaced", CROSS, REPLACE, turns([4000, 10], [-4000, 10])),
    Pair("cross-norms", CROSS_NORMS, ADD, moves(FEW, [4000, 300]), sites=MANY),
    Pair("column-histograms", COUNTS, ADD, moves(FEW, [4000, 4000]), sites=MANY),
    Pair("columns, replaced", COUNTS, REPLACE, turns([500] * 2, [4000] * 2), sites=MANY),
    Pair("column-moments", MOMENTS, ADD, moves(FEW, [S, S])),
    Pair("coordinate-clipped-sum", BOXED, ADD, moves(FEW, [100, 100])),
    Pair("boxed, replaced", BOXED, REPLACE, turns([1, -100], [100, 100])),
    Pair("count, laplace", q.Count(), ADD, moves(FEW, LONG), LAPLACE),
    Pair("row-norms, replaced, laplace", NORMS, REPLACE, turns(SHORT, LONG), LAPLACE),
    Pair("clipped-sum, laplace", SUM, ADD, moves(FEW, [2896, 2896]), LAPLACE),
    Pair("energy, laplace", ENERGY, ADD, moves(FEW, [S, S]), LAPLACE),
    Pair("gram, laplace", GRAM, ADD, moves(FEW, [2828, 2828]), LAPLACE),
    Pair("block-ranks, laplace", RANKS, ADD, moves(rows([0, 0]), LONG), LAPLACE),
]
