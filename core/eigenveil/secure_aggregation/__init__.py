"""Secure aggregation: pairwise masks between sites that pinned each other's keys, with noise shares."""
