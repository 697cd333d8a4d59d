"""Planning: from an analyst's study to one that can be stored, in isolated processes and within the
operator's limits. Imports storage, keys and threads; nothing that drives a study."""
