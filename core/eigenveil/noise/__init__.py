"""Noise: the only source of randomness (`source`), and samplers of other distributions that use it.

Used by `mechanisms`, and by the simulation, the coordinator and sites, which run a study."""
