"""Programs that once went wrong, and the sizes of the sites' records."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.server.rig import SITES
from tests.torture.programs import rehearsal
from tests.torture.programs.operations import one_hot, template
from tests.torture.programs.programs import FOUND, faults_of, stored_program


def test_every_stored_program_ends_without_a_fault() -> None:
    with template() as members:
        found = {
            path.name: faults_of(*stored_program(path), members)[0] for path in FOUND.glob("program-*.json")
        }
    assert found
    assert not any(found.values()), found


@pytest.mark.parametrize("sites", [SITES, rehearsal.SITES], ids=["programs", "rehearsal"])
def test_a_sum_of_sizes_tells_its_sites_and_that_none_is_counted_twice(sites: tuple[str, ...]) -> None:
    sizes = [len(one_hot(site, sites)) for site in sites]
    subsets = [np.array(chosen) for chosen in product((0, 1), repeat=len(sizes))]
    sums = {int(chosen @ sizes) for chosen in subsets}
    assert len(sums) == 2 ** len(sizes)
    twice = {int(chosen @ sizes) + size for chosen in subsets for size in chosen * sizes if size}
    assert not sums & twice
