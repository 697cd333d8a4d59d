"""A site's records, from cells of a file to rows on a study's grid. Imports no other package of the
client."""
