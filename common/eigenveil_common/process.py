"""What a daemon asks of the operating system before it holds anything."""

from __future__ import annotations

import resource


def forbid_core_dumps() -> None:
    """No image of this process reaches the disk, however it ends: it holds sums, and at a site records."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def allow_files() -> None:
    """As many open files as the system lets this process have: what it starts with is often 1,024, and each
    site takes three of a coordinator."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
