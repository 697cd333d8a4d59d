"""Algorithms for exact subspaces, by votes or smooth sensitivity."""
