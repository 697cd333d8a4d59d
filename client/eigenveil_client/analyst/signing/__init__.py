"""The analyst's own key, and what it signs."""
