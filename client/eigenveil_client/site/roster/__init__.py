"""Key cards that people of this site pin: of other sites, and of analysts."""
