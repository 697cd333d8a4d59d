"""scikit-learn estimators that run a study of one simulated site. No daemon imports them."""

try:
    import sklearn  # noqa: F401 - checked first, for a clear message
except ModuleNotFoundError as lack:
    raise ModuleNotFoundError(
        "the estimators need scikit-learn: pip install 'eigenveil[estimators]'", name=lack.name
    ) from lack
