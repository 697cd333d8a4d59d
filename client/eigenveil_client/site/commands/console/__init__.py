"""Console of a site: web pages on this machine for the people who decide about studies."""
