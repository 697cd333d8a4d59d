"""What else a released covariance answers, and how far the privacy noise moves it: post-processing [P7]."""
