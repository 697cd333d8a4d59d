"""Sums that nobody sees: pairwise masks between sites that know each other, with the noise inside."""
