"""What a source of records is to all who read it: columns in batches, and what becomes of their cells."""
