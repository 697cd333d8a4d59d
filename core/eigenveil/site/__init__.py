"""The private side at one site: exact answers from records. Imports queries, and no noise, algorithm or plan."""
