"""The same genotypes are the same records, whichever file they lie in and whichever allele it counts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zarr

from eigenveil.errors import Code, RequestError
from eigenveil.site.record_view import to_grid
from eigenveil_client.records import grid_encoding, records
from eigenveil_client.records.column_quality import PlausibleRange
from eigenveil_client.records.genotype_table import MISSING
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.records.records import Records
from eigenveil_client.records.tables import batches
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig
from tests.client.records.genotypes.support import (
    A2,
    Counts,
    a_study,
    counted,
    genotypes,
    plink,
    table,
    vcf_zarr,
)
from tests.client.records.recoding.support import open_table

Writer = Callable[[Path, Counts], Path]
PERSON_DECLINES, VARIANTS = 23, 11
COUNTS = genotypes(PERSON_DECLINES, VARIANTS)
NAMES = counted(VARIANTS)


def read(path: Path, study: object, **message: object) -> Records:
    return records.read(RecordsConfig(source=path), study, **message)  # type: ignore[arg-type]


def as_floats() -> np.ndarray:
    return np.where(COUNTS == MISSING, np.nan, COUNTS.astype(np.float64))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few persons at a time."""
    for name in ("BATCH_BYTES", "BATCH_CELLS"):
        monkeypatch.setattr(batches, name, 5 * VARIANTS)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(
    ("fill", "upper", "steps"),
    [(None, 2.0, 1), (1.0, 2.0, 1), (0.74, 2.0, 64), (0.5, 1.0, 4096), (None, 1.5, 4)],
)
def test_every_file_gives_the_integers_and_counts_that_its_numbers_give(
    tmp_path: Path, fill: float | None, upper: float, steps: int
) -> None:
    study = a_study(NAMES, fill=fill, upper=upper, steps=steps)
    plausible = {NAMES[2]: PlausibleRange(lower=0, upper=1, unit="alleles")}
    by_floats = read(table(tmp_path / "f.parquet", COUNTS, pa.float64()), study, plausible=plausible)
    assert by_floats.rows.tolist() == to_grid(as_floats(), study).tolist()
    for path in (
        plink(tmp_path / "a.bed", COUNTS),
        plink(tmp_path / "swapped.bed", COUNTS, swapped=(0, 3, 4)),
        vcf_zarr(tmp_path / "a.zarr", COUNTS),
        vcf_zarr(tmp_path / "phased.vcz", COUNTS, phase=3, chunks=(50, 50)),
        table(tmp_path / "a.parquet", COUNTS, pa.int8()),
    ):
        found = read(path, study, plausible=plausible)
        assert found.rows.tolist() == by_floats.rows.tolist(), path
        assert found.rows.dtype == by_floats.rows.dtype
        assert (found.persons, found.quality) == (PERSON_DECLINES, by_floats.quality), path


def test_integers_of_one_byte_are_placed_as_floats_whatever_they_are(tmp_path: Path) -> None:
    counts = np.random.default_rng(1).integers(-128, 128, (300, 3)).astype(np.int8)
    study = a_study(counted(3), lower=-100, upper=90.5, steps=512, fill=3.7)
    found, due = (
        read(table(tmp_path / f"{kind}.parquet", counts, kind), study) for kind in (pa.int8(), pa.int16())
    )
    assert found.rows.tolist() == due.rows.tolist()
    assert found.quality == due.quality


def test_a_study_may_count_either_allele_and_a_dosage_is_two_less_the_other(tmp_path: Path) -> None:
    study = a_study(counted(VARIANTS, A2), fill=1.0)
    for path in (plink(tmp_path / "a.bed", COUNTS, swapped=(1,)), vcf_zarr(tmp_path / "a.zarr", COUNTS)):
        assert read(path, study).rows.tolist() == (-to_grid(as_floats(), a_study(NAMES, fill=1.0))).tolist()


def test_columns_come_in_the_study_s_order_and_others_are_left_alone(tmp_path: Path) -> None:
    chosen = [7, 2, 9]
    study = a_study([NAMES[place] for place in chosen], fill=0.0)
    for path in (plink(tmp_path / "a.bed", COUNTS), vcf_zarr(tmp_path / "a.zarr", COUNTS)):
        known = COUNTS[:, chosen].clip(0) - 1
        assert read(path, study).rows.tolist() == known.tolist()


def test_an_allele_that_a_variant_does_not_have_is_no_column(tmp_path: Path) -> None:
    study = a_study(["rs1_T"])
    for path in (plink(tmp_path / "a.bed", COUNTS), vcf_zarr(tmp_path / "a.zarr", COUNTS)):
        with pytest.raises(BadRecords, match="column 'rs1_T' is not in"):
            read(path, study)


def test_of_one_name_for_two_variants_nobody_knows_which_is_meant(tmp_path: Path) -> None:
    path = plink(tmp_path / "a.bed", COUNTS)
    bim = path.with_suffix(".bim")
    bim.write_text(bim.read_text().replace("rs1\t", "rs0\t"))
    with pytest.raises(BadRecords, match="2 columns 'rs0_A'"):
        read(path, a_study(NAMES[:1]))
    assert len(read(path, a_study(NAMES[4:5], fill=1.0)).rows) == PERSON_DECLINES


def test_the_allele_counted_is_one_of_any_number(tmp_path: Path) -> None:
    path = vcf_zarr(tmp_path / "a.zarr", COUNTS[:6, :2])
    group = zarr.open_group(str(path), mode="a", zarr_format=2)
    calls = np.array([[0, 0], [0, 2], [2, 2], [1, 2], [0, 3], [-2, 2]], dtype=np.int8)
    group["call_genotype"][0] = calls  # type: ignore[index]
    group["variant_allele"][0] = ["G", "A", "T"]  # type: ignore[index]
    placed = read(path, a_study(["rs0_T"], fill=2.0, steps=1)).rows[:, 0]
    # an allele that there is not, and half a call, are missing
    assert placed.tolist() == [-1, 0, 1, 0, 1, 1]


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("wide", [0, VARIANTS + 1])
def test_a_person_s_first_row_stands_for_the_person_in_a_genotype_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wide: int
) -> None:
    monkeypatch.setattr(grid_encoding, "WIDE", wide)
    fid = [f"f{number // 2}" for number in range(PERSON_DECLINES)]
    path, study = plink(tmp_path / "a.bed", COUNTS, fid=fid), a_study(NAMES, fill=1.0)
    everyone = read(path, replace(study, person_column="iid"))
    assert everyone.rows.tolist() == read(path, study).rows.tolist()
    families = read(path, replace(study, person_column="fid"))
    assert families.rows.tolist() == everyone.rows[::2].tolist()
    assert families.persons == families.quality[0].persons == -(-PERSON_DECLINES // 2)


def test_a_rule_of_the_site_holds_for_genotypes(tmp_path: Path) -> None:
    rule = ColumnRule(name=NAMES[0], factor=0.5)
    for path in (plink(tmp_path / "a.bed", COUNTS), table(tmp_path / "a.parquet", COUNTS, pa.int8())):
        found = read(path, a_study(NAMES[:2], fill=0.0, steps=2), rules=(rule,))
        assert found.rows[:, 0].tolist() == (COUNTS[:, 0].clip(0) - 2).tolist()


@pytest.mark.parametrize(("write", "ending"), [(plink, ".bed"), (vcf_zarr, ".zarr")])
def test_one_genotype_more_is_another_digest(tmp_path: Path, write: Writer, ending: str) -> None:
    changed = COUNTS.copy()
    changed[3, 4] = 2 if changed[3, 4] != 2 else 0
    files = [
        write(tmp_path / f"{number}{ending}", counts)
        for number, counts in enumerate((COUNTS, COUNTS, changed))
    ]
    first, again, other = (open_table(path).digest() for path in files)
    assert first == again != other


def test_the_lists_beside_a_bed_are_part_of_its_digest_and_guarded_as_it_is(
    tmp_path: Path,
) -> None:
    path = plink(tmp_path / "a.bed", COUNTS)
    before, files = open_table(path).digest(), RecordsConfig(source=path).files
    assert set(files) == {path, path.with_suffix(".bim"), path.with_suffix(".fam")}
    for beside in (".bim", ".fam"):
        text = path.with_suffix(beside).read_text()
        path.with_suffix(beside).write_text(text.replace("0", "5", 1))
        assert open_table(path).digest() != before
        path.with_suffix(beside).write_text(text)


@pytest.mark.parametrize(
    ("ending", "spoil", "words"),
    [
        (".bed", lambda data: data[:-1], "the number of genotypes"),
        (".bed", lambda data: data + b"\0", "the number of genotypes"),
        (".bed", lambda data: b"\0" + data[1:], "not a variant-major .bed"),
        (".bed", lambda data: data[:2] + b"\0" + data[3:], "variant-major"),
        (".bim", lambda data: data + data.splitlines(keepends=True)[-1], "the number of genotypes"),
        (".bim", lambda data: data.replace(b"\tG", b"", 1), "line 1: a line must have"),
        (".fam", lambda data: b"".join(data.splitlines(keepends=True)[:-4]), "the number of genotypes"),
        (".fam", lambda data: b"\xff" + data, "cannot be read"),
        (".fam", lambda data: data.replace(b"p0", b"p 0", 1), "line 1: a line must have"),
        (".bim", lambda data: data.replace(b"\n", b"\tG\n", 1), "line 1: a line must have"),
        (".fam", None, "cannot be read"),
        (".bim", None, "cannot be read"),
    ],
)  # fmt: skip
def test_files_that_do_not_fit_each_other_are_refused(
    tmp_path: Path, ending: str, spoil: object, words: str
) -> None:
    path = plink(tmp_path / "a.bed", COUNTS)
    spoilt = path.with_suffix(ending)
    if callable(spoil):
        spoilt.write_bytes(spoil(spoilt.read_bytes()))
    else:
        spoilt.unlink()
    with pytest.raises(BadRecords, match=words):
        open_table(path)


@pytest.mark.parametrize("name", ["call_genotype", "sample_id", "variant_id", "variant_allele"])
def test_a_group_that_lacks_an_array_or_has_one_of_another_shape_is_refused(
    tmp_path: Path, name: str
) -> None:
    for spoil in (zarr.Group.__delitem__, _shorten):
        path = vcf_zarr(tmp_path / "a.zarr", COUNTS)
        spoil(zarr.open_group(str(path), mode="a", zarr_format=2), name)
        with pytest.raises(BadRecords, match="not in VCF-Zarr layout"):
            open_table(path)


def _shorten(group: zarr.Group, name: str) -> None:
    stored = group[name]
    assert isinstance(stored, zarr.Array)
    stored.resize((stored.shape[0] - 1, *stored.shape[1:]))


def test_a_broken_chunk_is_said_without_what_is_in_it(tmp_path: Path) -> None:
    path = vcf_zarr(tmp_path / "a.zarr", COUNTS)
    for chunk in (path / "call_genotype").glob("[0-9]*"):
        chunk.write_bytes(b"genotypes of somebody")
    with pytest.raises(BadRecords, match="the genotypes cannot be read") as result:
        read(path, a_study(NAMES, fill=1.0))
    assert result.value.__cause__ is None
    assert result.value.__suppress_context__


@pytest.mark.parametrize("fill", [0, 2, -1])
def test_a_chunk_that_is_not_there_is_never_taken_for_genotypes(tmp_path: Path, fill: int) -> None:
    path = vcf_zarr(tmp_path / "a.zarr", COUNTS, fill=fill)
    whole = read(path, a_study(NAMES, fill=1.0))
    (path / "call_genotype" / "0.0.0").unlink()
    if fill >= 0:
        with pytest.raises(BadRecords, match="lacks chunks of call_genotype"):
            open_table(path)
        return
    lacking = read(path, a_study(NAMES, fill=1.0))
    assert sum(one.missing for one in lacking.quality) > sum(one.missing for one in whole.quality)


@pytest.mark.parametrize("library", ["bed_reader", "zarr"])
def test_without_the_library_a_command_says_which_extra_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    bed, group = plink(tmp_path / "a.bed", COUNTS), vcf_zarr(tmp_path / "a.zarr", COUNTS)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(RequestError, match=r"eigenveil\[genotypes\]") as result:
        open_table(bed if library == "bed_reader" else group)
    assert result.value.code is Code.BAD_CONFIG
