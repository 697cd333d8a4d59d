"""The study files that are handed out: the example names every key, the packaged one is as it says."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

import numpy as np

from eigenveil.errors import Code
from eigenveil.study.study import Column, Federation
from eigenveil.study.toml import SECTIONS, parse_study
from eigenveil_client.demo.layout import open_demo_folder, public_records
from tests.support import refused

EXAMPLE = Path(__file__).parents[3] / "deploy" / "config" / "study.example.toml"


def test_the_example_names_every_key() -> None:
    text = EXAMPLE.read_text()
    parse_study(text)
    data = tomllib.loads(text)
    for section, keys in SECTIONS.items():
        assert set(keys) <= set(data[section] if section else data)
    assert set(data["federation"]) == {field.name for field in fields(Federation)}
    assert set(data["columns"][0]) == {field.name for field in fields(Column)}


def test_the_packaged_study_fits_the_public_records() -> None:
    study = parse_study(files("eigenveil_client").joinpath("studies", "breast-cancer.toml").read_text())
    values = public_records().values
    assert values.shape == (569, study.dimension) == (569, 30)
    lower = np.array([column.lower for column in study.columns])
    upper = np.array([column.upper for column in study.columns])
    beyond = (values < lower) | (values > upper)
    assert beyond.mean() < 0.001
    assert all(column.unit for column in study.columns)
    # Bounds that hug the records would have been read off them.
    assert (np.abs(values.max(axis=0) - upper) > 0).all()
    assert study.warnings() == ()


def test_a_demonstration_folder_has_one_user(tmp_path: Path) -> None:
    with open_demo_folder(tmp_path / "demo") as layout, refused(Code.CONFLICT, "a demonstration runs in"):
        open_demo_folder(layout.root).__enter__()
