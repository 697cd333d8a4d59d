"""Bounds at which whole numbers stay whole on the grid, without which no exact subspace survives rounding."""

from __future__ import annotations
