"""What a site's records come from, a module for each kind: files as they are, and views that a SELECT makes."""
