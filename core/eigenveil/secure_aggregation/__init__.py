<<<<<<< HEAD
"""Sums that nobody sees: pairwise masks between sites that know each other, with the noise inside."""
=======
"""Sums that no site and no coordinator can take apart: who the sites are, and what hides their numbers."""
>>>>>>> peers
