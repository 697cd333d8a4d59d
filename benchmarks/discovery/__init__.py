"""Dialects and columns that discovery finds in messy files, beside other programs."""
