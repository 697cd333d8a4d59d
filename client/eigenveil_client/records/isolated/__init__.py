"""Readers in isolated processes: a damaged file can crash a reader, and nothing else."""
