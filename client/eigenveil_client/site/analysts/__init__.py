"""The analysts whose keys this site's people have compared, and whose signature a study must have."""
