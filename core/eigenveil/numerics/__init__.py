"""Integer encoding, linear algebra and public pseudo-random numbers; imports no other eigenveil package."""
