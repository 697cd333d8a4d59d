"""Accuracy of the algorithms: published targets, and every version beside the one that is stored."""

from benchmarks.accuracy.runs import a_study, exact

__all__ = ["a_study", "exact"]
