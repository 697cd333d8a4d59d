"""The kernels in C, where the wheel was built with a compiler (hatch_build.py); there is no need for them."""

from __future__ import annotations

import ctypes
import os
from functools import cache

NAME = "kernels.so"


@cache
def library() -> ctypes.CDLL | None:
    """None where it was not built, or for another machine than this: numpy says the same.

    Its functions run without the interpreter's lock.
    """
    try:
        found = ctypes.CDLL(os.path.join(os.path.dirname(__file__), NAME))
    except OSError:
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    for name, arguments in {
        "eigenveil_along": [pointer, pointer, number, pointer, pointer],
        "eigenveil_squared_norms": [pointer, pointer],
        "eigenveil_coefficients": [pointer],
        "eigenveil_combined": [pointer, pointer, number, pointer],
        "eigenveil_shortened": [pointer, ctypes.c_double, pointer],
        "eigenveil_widened": [pointer, pointer],
    }.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, None
    return found
