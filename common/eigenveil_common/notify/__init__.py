"""Notices by mail or webhook that a study waits or has ended; never its content."""
