"""A study file of the variants that a file of genotypes lists: columns that are alike but for their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from eigenveil.errors import Code, RequestError
from eigenveil.planning.resolve import make_plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column, Federation, Missing, Study
from eigenveil.study.toml import study_to_toml
from eigenveil_client.analyst.python.choosing import offering, patience
from eigenveil_client.analyst.talk import at
from eigenveil_client.records.apart.reader import variants
from eigenveil_common.files import write_durably

FEWEST = 2**10  # records that a site must be able to have, for a study to be of any use
ABOUT = """\
# A column counts one allele of one variant, 0, 1 or 2; a missing genotype counts as 1 (fill). What this asks
# and costs is said by `eigenveil study explain`. Prune for linkage first, and ask for no more than needed.
"""


def write_genotype_study(
    out: Path, profile: Path | None, file: Path, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """Write a study of the variants of `file`; what it says as plain values. Who names sites asks nobody.

    Raises:
        RequestError: the study cannot be, or the file does not do.
    """
    found = variants(file)
    sites = tuple(one.strip() for one in (asked["sites"] or "").split(",") if one.strip())
    view = None if sites else at(profile, lambda analyst: analyst.federation())
    sites = sites or offering(view, found.columns)
    federation, seconds = Federation(sites=sites), patience(view, sites)
    study = _exact(
        Study(
            name=asked["name"] or out.stem,
            purpose=asked["purpose"],
            columns=tuple(
                Column(name=name, unit="alleles", lower=0, upper=2, fill=1) for name in found.columns
            ),
            epsilon=asked["epsilon"],
            delta=asked["delta"],
            components=asked["components"],
            algorithm=Algorithm.DP_PCA,
            missing=Missing.FILL,
            grid_steps=1,
            person_column=asked["person_column"],
            federation=federation if seconds is None else replace(federation, deadline_seconds=seconds),
        )
    )
    write_durably(out, (ABOUT + study_to_toml(study)).encode())
    return {
        "study": str(out),
        "columns": list(found.columns),
        "left_out": found.left_out,
        "sites": list(sites),
        "max_records": study.max_records,
    }


def _exact(study: Study) -> Study:
    """With the most records, up to what a study has if nothing is said, of which all sums stay exact."""
    try:
        make_plan(study)
    except RequestError as problem:
        if problem.code is not Code.OVERFLOW or study.max_records <= FEWEST:
            raise
        return _exact(replace(study, max_records=study.max_records // 2))
    return study
