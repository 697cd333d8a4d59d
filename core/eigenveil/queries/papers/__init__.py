"""Queries that only the papers' reference algorithms ask."""
