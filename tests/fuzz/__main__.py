"""`python -m tests.fuzz`: see `tests.fuzz.hunts`, which processes that are spawned can import."""

from __future__ import annotations

import sys

from tests.fuzz.hunts import main

if __name__ == "__main__":
    sys.exit(main())
