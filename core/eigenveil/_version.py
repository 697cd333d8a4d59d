"""Version of eigenveil, defined only here."""

__version__ = "1.1.0.dev0"
