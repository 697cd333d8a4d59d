"""Pictures of a release: each is painted on matplotlib's axes, for a page, a notebook and a paper alike."""

try:
    import matplotlib  # noqa: F401 - before anything of ours fails for want of it
except ModuleNotFoundError as lack:
    raise ModuleNotFoundError(
        'pictures need matplotlib: pip install "eigenveil[analyst]"', name=lack.name
    ) from lack
