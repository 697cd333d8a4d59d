"""Discovery of a source that nobody has described yet: dialect, header, columns and persons.

Everything here is a guess with its evidence, made at the site for the site's people; no daemon uses it."""
