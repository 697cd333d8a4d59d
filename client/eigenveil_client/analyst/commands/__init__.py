"""The analyst's commands. What a command needs is imported when it runs."""
