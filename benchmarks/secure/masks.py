"""Speed of masks, drawn and added on one core, beside the keystream that they are made of, in turns.

`python -m benchmarks.secure.masks`; what all of one site's masking takes is a step of `benchmarks.growth`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from eigenveil.queries.limits import triangle
from eigenveil.secure_aggregation.masking import NONCE, ZEROS, add_mask

TARGET, RUNS = 500, 9  # MB a second of a core
LONG = 50_000  # numbers from which that is asked
NUMBERS = (1000, 50_000, triangle(1000), triangle(5000))


def speeds(numbers: int) -> tuple[float, float]:
    """Fastest MB/s of CPU time of `add_mask` and of ChaCha20 alone, in turns, over so many numbers."""
    values, key = np.zeros(numbers, dtype=np.uint64), os.urandom(32)
    drawn = bytearray(len(ZEROS))

    def alone() -> None:
        stream = Cipher(ChaCha20(key, NONCE), mode=None).encryptor()
        for left in range(values.nbytes, 0, -len(ZEROS)):
            stream.update_into(memoryview(ZEROS)[:left], drawn)

    ours = (lambda: add_mask(values, key, negative=True), lambda: add_mask(values, key, negative=False))
    pairs = [(_seconds(ours[i % 2]), _seconds(alone)) for i in range(RUNS)]
    masks, raw = (values.nbytes / 1e6 / min(times) for times in zip(*pairs, strict=True))
    return masks, raw


def _seconds(work: Callable[[], object]) -> float:
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def main() -> int:
    """Print them; 1 if the target is missed."""
    slowest = float("inf")
    for numbers in NUMBERS:
        masks, raw = speeds(numbers)
        print(f"{numbers:,} numbers: masks {masks:.0f} MB/s of a core, ChaCha20 alone {raw:.0f} MB/s")
        slowest = min(slowest, masks) if numbers >= LONG else slowest
    return int(slowest < TARGET)


if __name__ == "__main__":
    sys.exit(main())
