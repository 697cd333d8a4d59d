"""A dialect that could not be read by is refused when it is stated."""

from __future__ import annotations

import pytest

from eigenveil.errors import Code, RequestError
from eigenveil_client.records.tables.source import Dialect


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"separator": ""}, "separator must be one"),
        ({"separator": ";;"}, "separator must be one"),
        ({"separator": '"'}, "separator must be one"),
        ({"separator": "\n"}, "separator must be one"),
        ({"separator": "§"}, "separator must be one"),
        ({"decimal": ";"}, "decimal must be"),
        ({"thousands": "x"}, "thousands must be one of"),
        ({"decimal": ",", "thousands": ","}, "different marks"),
        ({"encoding": "latin-77"}, "encoding must be"),
        ({"encoding": "base64"}, "encoding must be"),
    ],
)
def test_what_no_text_is_written_in_is_refused(stated: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        Dialect(**stated)
    assert caught.value.code is Code.BAD_CONFIG
