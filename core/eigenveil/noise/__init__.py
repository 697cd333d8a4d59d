"""Where noise is drawn: one gateway, and its laws. Imports queries, protocol and accounting, no record."""
