"""A bundle: one archive with what support needs of a cluster or of one node, without secrets (`ottla debug bundle`)."""
