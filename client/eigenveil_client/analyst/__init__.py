"""The analyst's programs: studies at a coordinator, releases on disk. Imports no site."""
