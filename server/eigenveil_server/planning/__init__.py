"""From an analyst's words to a study that can be stored: planned in processes of their own, held against what
the operator allows. Imports storage, the keys and the threads, and nothing that drives a study."""
