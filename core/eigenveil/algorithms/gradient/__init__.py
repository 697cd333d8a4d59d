"""Algorithms that ask for gradients, round after round or batch after batch."""
