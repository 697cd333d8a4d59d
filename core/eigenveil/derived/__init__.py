"""Statistics derived from a released covariance, with errors from the privacy noise: post-processing [P7]."""
