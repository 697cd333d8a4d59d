"""A site's page for the people who decide about studies: on this machine only, in plain words."""
