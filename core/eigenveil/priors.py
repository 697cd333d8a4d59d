"""Priors of a study from the bytes of a file: public rows, loadings from the literature, an earlier release.

- *Rows*: CSV with a header and every column of the study, in its unit; other columns are ignored.
- *Loadings*: CSV with a line for each component: `share` (of the total variance), `scaling` (of the columns,
  as in a study) and a loading for each column of the study. Components are orthonormal.
- *Release*: a release.zip with a signature, of a study of the same columns, units and scaling.

A plan carries axes and variances derived from it, and the digest of the file; no row of it leaves this
program. What is wrong is named with its line, before anything is planned."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from eigenveil.errors import RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.protocol.plan import planned_study
from eigenveil.reporting.verify import SignedRelease, load_release
from eigenveil.study.checks import need, study_error
from eigenveil.study.prior import Prior, PriorSource, axes_in_plan, encode_axes
from eigenveil.study.scaling import Scaling
from eigenveil.study.study import Study

MOST_BYTES = 16 * 2**20
LEAST_ROWS = 10
SHARE, SCALING = "share", "scaling"
ARCHIVE = b"PK\x03\x04"
ORTHONORMAL = 0.02  # products of two loadings of three digits


def prior_from_file(data: bytes, study: Study) -> Prior:
    """Return the prior in the bytes of a file, for a study. Raises RequestError: code `bad-study` or
    `bad-release`, with the line that is wrong."""
    need(
        len(data) <= MOST_BYTES,
        f"prior: the file has more than {MOST_BYTES // 2**20} MiB; leave out columns or rows",
    )
    need(
        not data.lstrip().startswith(b"{"),
        "prior: this is a document without its signature; use the release.zip that it is from",
    )
    digest = hashlib.sha256(data).hexdigest()
    if data.startswith(ARCHIVE):
        return _released(data, study, digest)
    header, lines = _table(data)
    named = {column.name for column in study.columns}
    if SHARE in header and (SCALING in header or SHARE not in named):
        return _from_loadings(header, lines, study, digest)
    return _from_rows(header, lines, study, digest)


def prior_from_rows(rows: FloatArray, study: Study) -> Prior:
    """Return the prior of public rows in the order and units of a study's columns. Shape: (n, d). Raises
    RequestError: code `bad-study`, with the row that is wrong, from 1 on."""
    need(
        rows.ndim == 2 and rows.shape[1] == study.dimension,
        f"prior: rows have {rows.shape[-1]} columns, and the study has {study.dimension}",
    )
    places = [(place, row) for place, row in enumerate(rows.tolist(), 1)]
    digest = hashlib.sha256(np.ascontiguousarray(rows, dtype="<f8").tobytes()).hexdigest()
    return _of_rows(places, study, digest, "row")


def _table(data: bytes) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the header of a CSV text, and its other lines with their numbers."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise study_error(
            "prior: the file is neither a release nor text in UTF-8; save it as CSV in UTF-8"
        ) from problem
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as problem:
        raise study_error(f"prior: line 1 is not CSV: {problem}") from problem
    repeated = sorted({name for name in header if header.count(name) > 1})
    need(not repeated, f"prior: line 1 names a column twice: {', '.join(map(repr, repeated))}")
    width = len(header)

    def lines() -> Iterator[tuple[int, list[str]]]:
        while True:
            number = reader.line_num + 1  # a cell may have several
            try:
                cells = next(reader, None)
            except csv.Error as problem:
                raise study_error(f"prior: line {number} is not CSV: {problem}") from problem
            if cells is None:
                return
            if cells:
                has = f"prior: line {number} has {len(cells)} cells"
                need(len(cells) == width, f"{has}, and the header {width}")
                yield number, cells

    return header, lines()


def _places(header: Sequence[str], study: Study) -> list[int]:
    """Return the place of each of the study's columns in a header."""
    names = [column.name for column in study.columns]
    missing = [name for name in names if name not in header]
    need(
        not missing,
        f"prior: line 1 lacks {len(missing)} of the study's columns: {', '.join(map(repr, missing[:5]))}",
    )
    return [header.index(name) for name in names]


def _number(cell: str, name: str, line: int) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    need(math.isfinite(value), f"prior: line {line}: {name} = {cell.strip()!r} is not a finite number")
    return value


def _from_rows(
    header: Sequence[str], lines: Iterator[tuple[int, list[str]]], study: Study, digest: str
) -> Prior:
    places = _places(header, study)
    rows = [(line, [_number(cells[at], header[at], line) for at in places]) for line, cells in lines]
    return _of_rows(rows, study, digest, "line")


def _of_rows(rows: Sequence[tuple[int, list[float]]], study: Study, digest: str, noun: str) -> Prior:
    need(len(rows) >= LEAST_ROWS, f"prior: it has {len(rows)} rows, and needs at least {LEAST_ROWS}")
    values = np.array([row for _, row in rows], dtype=np.float64)
    lower = np.array([column.lower for column in study.columns])
    upper = np.array([column.upper for column in study.columns])
    outside = np.argwhere(~((values >= lower) & (values <= upper)))  # NaN is outside as well
    if len(outside):
        row, place = outside[0]
        column = study.columns[place]
        unit = f" {column.unit}" if column.unit else ""
        raise study_error(
            f"prior: {noun} {rows[row][0]}: {column.name} = {values[row, place]:g} is outside of the study's "
            f"bounds, {column.lower:g} to {column.upper:g}{unit}. Convert its unit, or remove that {noun}"
        )
    half = np.array([column.half_range for column in study.columns])
    spread = values.std(axis=0)
    if study.scaling is Scaling.STANDARD:
        same = [one.name for one, sd in zip(study.columns, spread.tolist(), strict=True) if sd <= 0]
        need(not same, f"prior: one value in all rows, so without a correlation: {', '.join(same[:5])}")
        half = spread
    elif study.scaling is Scaling.NONE:
        half = np.full(len(half), half.max())
    return _prior(_shrunk((values - values.mean(axis=0)) / half), study, PriorSource.ROWS, digest)


def _shrunk(rows: FloatArray) -> FloatArray:
    """Return the covariance matrix of centred rows, shrunk towards equal variances: of few rows the largest
    eigenvalues are too large. Source: Ledoit, Wolf 2004. Shape: (n, d) -> (d, d)."""
    n, d = rows.shape
    covariance = rows.T @ rows / n
    even = float(np.trace(covariance)) / d * np.eye(d)
    uneven = float(((covariance - even) ** 2).sum())
    chance = (float(((rows**2).sum(axis=1) ** 2).mean()) - float((covariance**2).sum())) / n
    share = max(1 - chance / uneven, 0.0) if uneven > 0 else 0.0
    return np.asarray(even + share * (covariance - even))


def _from_loadings(
    header: Sequence[str], lines: Iterator[tuple[int, list[str]]], study: Study, digest: str
) -> Prior:
    need(SCALING in header, f"prior: line 1 lacks {SCALING!r}, which states what the loadings refer to")
    places, share_at, scaling_at = _places(header, study), header.index(SHARE), header.index(SCALING)
    stated = "" if study.scaling is None else study.scaling.value
    shares, loadings = list[float](), list[list[float]]()
    for line, cells in lines:
        scaling = cells[scaling_at].strip()
        need(
            scaling == stated,
            f'prior: line {line}: scaling is {scaling!r}, and the study has "{stated}"; use loadings for it',
        )
        share = _number(cells[share_at], SHARE, line)
        most, limit = (shares[-1], "not above the line before") if shares else (1.0, "at most 1")
        need(0 < share <= most, f"prior: line {line}: share = {share:g} must be above 0, and {limit}")
        loading = [_number(cells[at], header[at], line) for at in places]
        off = max((abs(float(np.dot(loading, other))) for other in loadings), default=0.0)
        off = max(off, abs(float(np.dot(loading, loading)) - 1))
        need(
            off <= ORTHONORMAL,
            f"prior: line {line}: the loadings are not orthonormal; a product with them is off by {off:.2g}",
        )
        shares.append(share)
        loadings.append(loading)
    need(bool(shares), "prior: the file has no component; write one in a line")
    total, others = sum(shares), max(study.dimension - len(shares), 1)
    rest = 1 - total
    need(rest >= -ORTHONORMAL, f"prior: the shares add up to {total:g}, which is above 1")
    need(
        shares[-1] >= (rest - ORTHONORMAL) / others,
        f"prior: the last share, {shares[-1]:g}, is below {rest / others:.2g}, the mean of the others; "
        "components have more",
    )
    return _prior(_spiked(np.array(loadings), np.array(shares), 1.0), study, PriorSource.LOADINGS, digest)


def _spiked(axes: FloatArray, variances: FloatArray, total: float) -> FloatArray:
    """Return the matrix of these variances along axes, with the rest of the total even over all others.
    Shape: axes (k, d), variances (k,) -> (d, d)."""
    k, d = axes.shape
    level = max(total - float(variances.sum()), 0.0) / max(d - k, 1)
    level = min(level, float(variances.min()))
    return np.asarray((axes.T * (variances - level)) @ axes + level * np.eye(d))


def _released(data: bytes, study: Study, digest: str) -> Prior:
    """Return the prior of an earlier release; its signature is valid, and its key is for the caller."""
    release = load_release(data)
    earlier, result = planned_study(release.document["plan"]), release.result
    if result.declined or not len(result.components):
        raise study_error("prior: this release has no components; use another one")
    need(
        earlier.scaling is study.scaling,
        f'prior: the release is for scaling = "{_value(earlier.scaling)}", and the study has '
        f'"{_value(study.scaling)}"; use one for the same scaling',
    )
    order = _matching(earlier, study)
    axes = result.components[:, order]
    matrix = _spiked(axes, np.maximum(result.explained_variance, 0.0), result.total_variance)
    if study.scaling is Scaling.BOUNDS:  # their unit is half the distance between bounds
        old = np.array([earlier.columns[place].half_range for place in order])
        factor = old / np.array([column.half_range for column in study.columns])
        matrix = matrix * np.outer(factor, factor)
    shared = sorted(set(earlier.federation.sites) & set(study.federation.sites))
    prior = _prior(matrix, study, PriorSource.RELEASE, digest, release)
    return replace(prior, shared_sites=tuple(shared))


def _value(scaling: Scaling | None) -> str:
    return "" if scaling is None else scaling.value


def _matching(earlier: Study, study: Study) -> list[int]:
    """Return the place of each column of a study in an earlier one of the same columns and units."""
    places = {column.name: place for place, column in enumerate(earlier.columns)}
    names = {column.name for column in study.columns}
    other = sorted(places.keys() ^ names)
    need(not other, f"prior: the release and the study differ in columns: {', '.join(other[:5])}")
    for column in study.columns:
        unit = earlier.columns[places[column.name]].unit
        need(
            unit == column.unit,
            f"prior: column {column.name!r} is in {unit!r} in the release, and in {column.unit!r} here",
        )
    return [places[column.name] for column in study.columns]


def _prior(
    matrix: FloatArray, study: Study, source: PriorSource, digest: str, release: SignedRelease | None = None
) -> Prior:
    """Return what a plan carries of a covariance matrix. Shape: (d, d)."""
    values, vectors = eigenpairs(matrix)
    d, m = len(values), min(axes_in_plan(len(values)), len(values))
    variances = np.maximum(values / max(float(values[0]), 1e-300), 0.0)
    level = float(variances[m:].mean()) if m < d else float(variances[-1])
    try:
        return Prior(
            source=source,
            sha256=digest,
            scaling=study.scaling or Scaling.BOUNDS,
            variances=tuple(variances[:m].tolist()),
            level=level,
            axes=encode_axes(vectors[:, :m].T),
            signer="" if release is None else release.public_key.hex(),
        )
    except RequestError as problem:
        raise study_error(f"prior: the file gives no axes ({problem})") from problem
