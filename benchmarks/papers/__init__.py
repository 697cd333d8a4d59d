"""Every scheme of the four papers, run in its own regime to a result (`make papers`)."""
