"""A release in an analyst's hands: verified, and read further."""
