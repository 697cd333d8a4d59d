"""What runs at a hospital (`eigenveil-site`), and what an analyst runs (`eigenveil`)."""
