"""Programs that once went wrong."""

from __future__ import annotations

from tests.torture.programs.operations import template
from tests.torture.programs.programs import FOUND, faults_of, stored_program


def test_every_stored_program_ends_without_a_fault() -> None:
    with template() as members:
        found = {
            path.name: faults_of(*stored_program(path), members)[0] for path in FOUND.glob("program-*.json")
        }
    assert found
    assert not any(found.values()), found
