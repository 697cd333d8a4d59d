"""What a site's records come from, a module a kind: files as they are, and views that a SELECT makes."""
