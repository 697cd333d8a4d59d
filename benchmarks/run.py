"""`make bench`: every benchmark, one after the other. Figures are ratios or medians of one run."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Starting, kernels, noise, rounds, whole algorithms, planner, accuracy; 1 if a target was missed."""
    sys.path.insert(0, str(ROOT))
    from benchmarks import accuracy, algorithms, federation, kernels, noise, planner, start

    kernels.main()
    missed = noise.main()
    federation.main()
    return max(missed, start.main(), algorithms.main(), planner.main(), accuracy.main())


if __name__ == "__main__":
    sys.exit(main())
