"""A study is written of the variants that a file lists, each counted by an allele that says its strand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eigenveil.study.toml import parse_study
from eigenveil_client.records.genotype_files import list_variants
from eigenveil_client.records.records import load
from eigenveil_client.records.tables.source import BadRecords
from tests.client.commands import eigenveil
from tests.client.records.genotypes.support import genotypes, plink, vcf_zarr

COUNTS = genotypes(23, 11)


def test_a_new_study_of_a_list_reads_the_genotypes_beside_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
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
    assert found.columns == ("rs2_A", "rs4_T", "rs5_AT")
    assert found.left_out == 3


@pytest.mark.parametrize(
    ("ending", "text", "words"),
    [
        (".bim", "1 rs1 0 1 A G\n1 rs1 0 2 A C\n", "repeats 1 names of variants"),
        (".bim", "1 rs1 0 1 A G\n1 rs1 0 2 A G\n", "rs1"),
        (".bim", "1 rs1 0 1 A\n", "line 1"),
        (".fam", "", "variants are read from"),
    ],
)
def test_a_list_that_names_no_columns_is_refused(tmp_path: Path, ending: str, text: str, words: str) -> None:
    path = tmp_path / f"a{ending}"
    path.write_text(text)
    with pytest.raises(BadRecords, match=words):
        list_variants(path)
