"""How the process ends when it may not go on: at once, releasing nothing more."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn

from eigenveil.errors import InternalError
from eigenveil_common import log

Fatal = Callable[[InternalError], NoReturn]


def end_process(problem: InternalError) -> NoReturn:
    """After a failed write, or with studies that nobody drives, nothing may be released: leave at once,
    running nothing more."""
    log.logger.critical("%s-failed %s; the process ends", problem.code.value, problem)
    os._exit(problem.exit_code)
