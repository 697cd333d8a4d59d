"""zero: the covariance matrix 0, which costs nothing; what any method must beat.

Source: the baseline of Dong, Liang, Yi 2022. Below a certain n, or above a certain d, it is the best.
"""

from __future__ import annotations

import numpy as np

from eigenveil.numerics.linalg import start_directions
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.protocol.plan import Plan


def zero(plan: Plan) -> Steps:
    """Public directions, no variance; the mean is the middle of the public bounds.

    Neighbours: any.
    Privacy: [P7]; nothing is asked, so nothing is revealed.
    Cost: none.
    """
    d, k = plan.study.dimension, plan.study.components
    yield from ()
    return Estimate(
        components=start_directions(d, k).T,
        explained_variance=np.zeros(k),
        mean=np.zeros(d),
        records=0.0,
        total_variance=0.0,
        noise_scale=0.0,
        sin_error=1.0,
        covariance=np.zeros((d, d)),
        warnings=("nothing was asked: these directions are public and say nothing about the records",),
    )
