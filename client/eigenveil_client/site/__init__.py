"""Daemon and commands of a site. Imports `connection` and `records`; no analyst, simulation or demo."""
