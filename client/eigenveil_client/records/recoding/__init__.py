"""A site's rules for columns: from the rows of one person to one number a column."""
