"""Sources of a site's records, one module for each kind: files, and views by a SELECT."""
