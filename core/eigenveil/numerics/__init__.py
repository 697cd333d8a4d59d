"""Integers, linear algebra and public randomness: what everything else may import, and imports nothing of it."""
