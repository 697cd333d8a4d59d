"""The contract of a source of records: named columns in batches, and their cells."""
