"""What a source of records is to all who read one: named columns in batches, and what becomes of their cells."""
