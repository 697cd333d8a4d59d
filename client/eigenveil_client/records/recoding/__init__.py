"""What a site says its cells mean: from the rows of one person to one number a column."""
