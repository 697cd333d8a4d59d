"""scikit-learn's face of eigenveil: a study of one simulated site. No daemon imports it."""
