"""Reference algorithms of the papers."""
