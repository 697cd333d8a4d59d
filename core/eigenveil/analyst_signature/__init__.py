"""A study in its analyst's own name: the analyst's key card, and the signed authorization of one plan."""
