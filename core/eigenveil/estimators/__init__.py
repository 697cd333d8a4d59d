"""scikit-learn's face of eigenveil: a study of one simulated site. No daemon imports it."""

try:
    import sklearn  # noqa: F401 - before anything of ours fails for want of it
except ModuleNotFoundError as lack:
    raise ModuleNotFoundError(
        "the estimators need scikit-learn: pip install 'eigenveil[estimators]'", name=lack.name
    ) from lack
