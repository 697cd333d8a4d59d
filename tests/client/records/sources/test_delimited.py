"""Which lines of a file are records, for the reader that reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from eigenveil_client.records.sources.delimited import CsvTable
from eigenveil_client.records.sources.opening import open_table
from tests.client.records.test_records import csv


def test_a_line_is_left_out_exactly_if_it_is_no_record_for_the_reader(tmp_path: Path) -> None:
    """The reader is Arrow's: where the two differed, one line could have a whole file refused."""
    rng, outcomes = np.random.default_rng(1), set[bool]()
    for _ in range(500):
        line = bytes(rng.choice(list(b'",,""a \xff\t\0'), size=rng.integers(1, 12)))
        path = csv(tmp_path, b"a,b,c\n" + line + b"\nZ,Z,Z\n")
        try:
            read = arrow_csv.read_csv(path, convert_options=arrow_csv.ConvertOptions(check_utf8=False))
            one_row = read.num_rows == 2
        except pa.ArrowInvalid:
            one_row = False
        table = open_table(path)
        assert isinstance(table, CsvTable)
        assert [fits for _, _, fits in table._lines()] == [True, one_row, True], line
        outcomes.add(one_row)
    assert outcomes == {True, False}
