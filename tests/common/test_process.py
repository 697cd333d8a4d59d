"""What a daemon asks of the operating system."""

from __future__ import annotations

import subprocess
import sys

FREED = """
from pathlib import Path
from eigenveil_common.process import give_back, keep_buffers

def resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS")]
    return int(line.split()[1]) // 1024

keep_buffers()
before, messages = resident(), [b"x" * (3 * 2**20 + i) for i in range(10)]
small = [bytes(1000 + i) for i in range(2000)]
del messages
kept = resident() - before
give_back()
print(kept, resident() - before)
"""


def test_buffers_of_messages_are_kept_until_they_are_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    kept, left = map(int, done.stdout.split())
    assert kept >= 25  # MiB
    assert left <= 10
