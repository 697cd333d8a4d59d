"""A site's records: from a file's cells to rows on a study's grid. Imports no other room of the client."""
