"""Numbers that look normal and depend on nothing but a label: public, for estimates and examples."""

from __future__ import annotations

import hashlib
import math

import numpy as np

from eigenveil.numerics.encoding import FloatArray


def public_normals(label: bytes, shape: tuple[int, ...]) -> FloatArray:
    """The same numbers at every call, on every machine: never to be used as noise."""
    size = math.prod(shape)
    data = hashlib.shake_256(label).digest(8 * size)
    uniform = (np.frombuffer(data, dtype="<u4").astype(np.float64).reshape(2, -1) + 0.5) / 2**32
    out: FloatArray = np.sqrt(-2 * np.log(uniform[0])) * np.cos(2 * np.pi * uniform[1])
    return out.reshape(shape)
