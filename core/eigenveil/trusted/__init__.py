"""Mechanisms behind the barrier that need more than a noised sum; only `eigenveil.mechanisms` runs them.

Each draws through a `NoiseSource`, states its claim in core/PRIVACY.md, and needs a coordinator that is
trusted with the exact sums.
"""
