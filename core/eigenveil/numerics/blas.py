"""One BLAS thread: so that a replay gives the same bits, and where the pieces of the rows are the threads."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

import numpy  # noqa: F401 - its BLAS is the one that we call, and has to be loaded before it is looked for
from threadpoolctl import ThreadpoolController


@cache
def _libraries() -> ThreadpoolController:
    """Looked for once: it costs as much as a small round."""
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Within it numpy's linear algebra runs on one thread."""
    limited: AbstractContextManager[object] = _libraries().limit(limits=1)
    return limited
