"""scikit-learn estimators that run a study of one simulated site. No daemon imports them."""

from eigenveil.errors import install_command

try:
    import sklearn  # noqa: F401 - checked first, for a clear message
except ModuleNotFoundError as lack:
    raise ModuleNotFoundError(
        f"the estimators need scikit-learn: {install_command('eigenveil[estimators]')}", name=lack.name
    ) from lack
