"""scikit-learn's face of eigenveil: a simulated study of one site. Imports scikit-learn, and no daemon does."""
