"""Names, units and codes of common measurements."""
