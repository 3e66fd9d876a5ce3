"""A bundle: one archive with what support needs from a cluster or a node, without secrets (`ottla debug bundle`)."""
