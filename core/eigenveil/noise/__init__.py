"""Randomness: the one gateway through which noise is drawn, and samplers of other laws that draw from it.

Only `mechanisms` and whoever drives a study (the simulation, the coordinator) use it.
"""
