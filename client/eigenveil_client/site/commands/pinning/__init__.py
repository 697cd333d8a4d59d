"""Commands with which people of a site pin cards: of other sites, and of analysts."""
