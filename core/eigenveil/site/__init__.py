"""Private side at one site: exact answers from records. Imports no noise, algorithm or plan."""
