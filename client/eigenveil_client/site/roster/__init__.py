"""Pinned key cards of other sites and of analysts, and the keys of this site."""
