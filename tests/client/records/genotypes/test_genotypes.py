"""The same genotypes are the same records, whichever file they lie in and whichever allele it counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zarr

from eigenveil.site.record_view import to_grid
from eigenveil.study.toml import parse_study
from eigenveil_client.records import grid_encoding
from eigenveil_client.records.column_quality import PlausibleRange
from eigenveil_client.records.genotype_files import list_variants
from eigenveil_client.records.genotype_table import MISSING
from eigenveil_client.records.tables import batches
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig
from tests.client.commands import eigenveil
from tests.client.records.genotypes.support import A2, a_study, counted, genotypes, plink, table, vcf_zarr
from tests.client.records.support import load, open_table, read
from tests.support import Capture, Patch

PERSON_DECLINES, VARIANTS = 23, 11
COUNTS = genotypes(PERSON_DECLINES, VARIANTS)
NAMES = counted(VARIANTS)


def as_floats() -> np.ndarray:
    return np.where(COUNTS == MISSING, np.nan, COUNTS.astype(np.float64))


@pytest.fixture
def small_batches(monkeypatch: Patch) -> None:
    for name in ("BATCH_BYTES", "BATCH_CELLS"):
        monkeypatch.setattr(batches, name, 5 * VARIANTS)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(
    ("fill", "upper", "steps"),
    [(None, 2.0, 1), (1.0, 2.0, 1), (0.74, 2.0, 64), (0.5, 1.0, 4096), (None, 1.5, 4)],
)
def test_every_file_gives_the_same_grid_and_counts(
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
def test_the_first_row_is_the_person_in_genotypes(tmp_path: Path, monkeypatch: Patch, wide: int) -> None:
    monkeypatch.setattr(grid_encoding, "WIDE", wide)
    fid = [f"f{number // 2}" for number in range(PERSON_DECLINES)]
    path, study = plink(tmp_path / "a.bed", COUNTS, fid=fid), a_study(NAMES, fill=1.0)
    everyone = read(path, replace(study, person_column="iid"))
    assert everyone.rows.tolist() == read(path, study).rows.tolist()
    families = read(path, replace(study, person_column="fid"))
    assert families.rows.tolist() == everyone.rows[::2].tolist()
    assert families.persons == families.quality[0].persons == -(-PERSON_DECLINES // 2)


def test_lists_beside_a_bed_are_in_its_digest(tmp_path: Path) -> None:
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
def test_inconsistent_genotype_files_are_refused(
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
def test_a_group_without_an_array_or_of_another_shape_is_refused(tmp_path: Path, name: str) -> None:
    for spoil in (zarr.Group.__delitem__, _shorten):
        path = vcf_zarr(tmp_path / "a.zarr", COUNTS)
        spoil(zarr.open_group(str(path), mode="a", zarr_format=2), name)
        with pytest.raises(BadRecords, match="not in VCF-Zarr layout"):
            open_table(path)


def _shorten(group: zarr.Group, name: str) -> None:
    stored = group[name]
    assert isinstance(stored, zarr.Array)
    stored.resize((stored.shape[0] - 1, *stored.shape[1:]))


def test_a_broken_chunk_is_reported_without_its_content(tmp_path: Path) -> None:
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


def test_a_study_of_a_list_reads_its_genotypes(tmp_path: Path, capfd: Capture) -> None:
    bed, out = plink(tmp_path / "a.bed", COUNTS), tmp_path / "study.toml"
    words = ("study", "new", "--from-genotypes", bed.with_suffix(".bim"), "--sites", "north", "--out", out)
    assert eigenveil([*map(str, words), "--json"]) == 0
    result = json.loads(capfd.readouterr().out)
    study = parse_study(out.read_text())
    assert result["columns"] == [column.name for column in study.columns]
    assert load(bed, study).tolist() == (COUNTS.clip(0) - 1 + (COUNTS < 0)).tolist()
    assert load(vcf_zarr(tmp_path / "a.zarr", COUNTS), study).tolist() == load(bed, study).tolist()


def test_a_group_and_a_list_of_the_same_variants_give_the_same_columns(tmp_path: Path) -> None:
    bim = plink(tmp_path / "a.bed", COUNTS).with_suffix(".bim")
    assert list_variants(bim) == list_variants(vcf_zarr(tmp_path / "a.zarr", COUNTS))


def test_a_variant_that_reads_alike_on_both_strands_is_left_out(tmp_path: Path) -> None:
    bim = tmp_path / "a.bim"
    pairs = ("A T", "g c", "A G", "0 C", "T C", "AT A")
    bim.write_text("".join(f"1 rs{number} 0 {number} {pair}\n" for number, pair in enumerate(pairs)))
    found = list_variants(bim)
    assert (found.columns, found.left_out) == (("rs2_A", "rs4_T", "rs5_AT"), 3)


@pytest.mark.parametrize(("ending", "text", "words"), [
    (".bim", "1 rs1 0 1 A G\n1 rs1 0 2 A C\n", "repeats 1 names of variants"),
    (".bim", "1 rs1 0 1 A G\n1 rs1 0 2 A G\n", "rs1"),
    (".bim", "1 rs1 0 1 A\n", "line 1"),
    (".fam", "", "variants are read from"),
])  # fmt: skip
def test_a_list_that_names_no_columns_is_refused(tmp_path: Path, ending: str, text: str, words: str) -> None:
    path = tmp_path / f"a{ending}"
    path.write_text(text)
    with pytest.raises(BadRecords, match=words):
        list_variants(path)
