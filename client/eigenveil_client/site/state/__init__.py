"""What a site must not forget, in one database. Imports its policy, and neither daemon nor commands."""
