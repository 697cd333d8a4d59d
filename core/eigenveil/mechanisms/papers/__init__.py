"""Mechanisms of the papers' reference algorithms; each works on an exact sum."""
