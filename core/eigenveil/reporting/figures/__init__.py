"""Figures of a release, drawn on matplotlib axes for pages, notebooks and papers."""

try:
    import matplotlib  # noqa: F401 - checked first, for a clear message
except ModuleNotFoundError as lack:
    raise ModuleNotFoundError(
        'figures need matplotlib: pip install "eigenveil[analyst]"', name=lack.name
    ) from lack
