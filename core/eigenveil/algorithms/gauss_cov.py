"""gauss-cov: temporary."""

from __future__ import annotations

import numpy as np

from eigenveil.accounting import split
from eigenveil.algorithms.estimate import Estimate, Steps
from eigenveil.grid import midpoint
from eigenveil.linalg import symmetric, top_eigenpairs
from eigenveil.plan import Plan
from eigenveil.query import Count, Gram, Priced, S, row_norm_limit


def gauss_cov(plan: Plan) -> Steps:
    study = plan.study
    d, k = study.dimension, study.components
    a, b = split(plan.micro_rho, 1, 99)
    n = float((yield Priced(ask=Count(), micro_rho=a)).values[0])
    r = yield Priced(ask=Gram(centre=midpoint(study), radius=row_norm_limit(d) // 2), micro_rho=b)
    cov = symmetric(r.values, d) / max(n, 1.0) / S**2
    vals, vecs = top_eigenpairs(cov, k)
    return Estimate(
        components=vecs.T,
        explained_variance=vals,
        mean=np.zeros(d),
        records=n,
        total_variance=float(np.trace(cov)),
        noise_scale=r.sigma / n / S**2,
        sin_error=0.0,
        covariance=cov,
    )
