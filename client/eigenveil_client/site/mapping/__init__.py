"""A site's columns as columns of a dictionary: proposals with their reasons, and their rules."""
