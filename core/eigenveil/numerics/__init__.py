"""Integers, linear algebra and public randomness: everything may import it, and it imports nothing else."""
