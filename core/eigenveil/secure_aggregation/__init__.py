"""Sums that no site and no coordinator can take apart: who the sites are, and what hides their numbers."""
