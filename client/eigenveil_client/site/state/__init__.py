"""Durable state of a site in one database. Imports the site's policy, and neither daemon nor commands."""
