"""Federated PCA with differential privacy: the pure core.

from eigenveil import PrivatePCA, simulate
"""

from __future__ import annotations

__version__ = "0.1.0"
