"""`python -m tests.matrix`: try a release of the last commit everywhere, and write docs/matrix.json.

Rows, results and resuming are those of `python -m tests.everything`; a row that another tree was tried with
runs again. Pythons are found as `python3.12`, or named in PYTHONS."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from deploy.release.__main__ import release
from tests.everything.__main__ import everything, heed_signals
from tests.everything.results import Result, Results, store
from tests.everything.rows import Row
from tests.everything.tree import MATRIX, ROOT, commit
from tests.matrix.environments import ENVIRONMENTS, KINDS, ROWS
from tests.matrix.trial import RELEASE

NOT_YET = "not run yet"


def text(tree: str, results: Results, rows: tuple[Row, ...]) -> str:
    """Return the table as JSON, a row a line: also those that have not run on this tree."""
    lines = []
    for row in rows:
        name, result = {"row": row.name, "promise": row.promise}, results.get(row.name)
        fields = asdict(result) | {"seconds": round(result.seconds)} if result else {"outcome": NOT_YET}
        lines.append(json.dumps(name | fields))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def stored(table: Path) -> dict[str, Result]:
    """Return the results of a written table, by row."""
    rows = json.loads(table.read_text()) if table.exists() else []
    ran = [row for row in rows if row["outcome"] != NOT_YET]
    fields = Result.__dataclass_fields__
    return {row["row"]: Result(**{name: row[name] for name in fields}) for row in ran}


def resume(table: Path, state: Path) -> None:
    """Take over the results of a table that was committed, where this folder has none of its own."""
    if not state.exists():
        store(state, stored(table))


def chosen_rows(rows: tuple[Row, ...], only: list[str]) -> tuple[Row, ...]:
    """Return the rows that one of the words selects: a kind, an environment, or a row; all without words."""
    parts = {row.name: {row.name, *row.name.split("-", 1)} for row in rows}
    return tuple(row for row in rows if not only or parts[row.name] & set(only))


def main() -> int:
    words = [*KINDS, *ENVIRONMENTS, *(row.name for row in ROWS)]
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=words, default=[], metavar="KIND|ENVIRONMENT|ROW")
    parser.add_argument("--again", action="store_true", help="run rows anew that are green already")
    chosen = parser.parse_args()
    heed_signals()
    build, table = RELEASE.parent, ROOT / MATRIX
    resume(table, build / "results.json")
    try:
        if not commit().endswith("+"):
            release(RELEASE)
        rows = chosen_rows(ROWS, chosen.only)
        return (
            0
            if everything(rows, again=chosen.again, every=ROWS, build=build, table=table, written=text)
            else 1
        )
    except KeyboardInterrupt:
        print("stopped; the same command goes on here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
