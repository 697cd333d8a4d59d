"""What a unit says is computed exactly, and refused where that would take more than its length."""

from __future__ import annotations

import pytest

from eigenveil.errors import Code, RequestError
from eigenveil_client.records.recoding.rule import conversion

pytest.importorskip("pint")


@pytest.mark.parametrize(
    "unit",
    [
        "m**9**9**9",
        "10**9**9*m",
        "m^9^9",
        "(10**99)**99 m",
        "2**(9**9) m",
        "10**999 m",
        "10**99_9 m",
        "1e999999999 m",
        "10⁹⁹⁹⁹⁹⁹⁹⁹⁹ m",
        "9" * 31 + " m",
        "m*" * 60 + "m",
    ],
)
def test_a_power_of_a_power_is_refused_before_it_is_computed(unit: str) -> None:
    """The first three have more digits than a machine has bytes."""
    with pytest.raises(RequestError, match="units: cannot convert") as refused:
        conversion(unit, "m", None)
    assert refused.value.code is Code.BAD_CONFIG
    assert "power" in str(refused.value.__cause__)
