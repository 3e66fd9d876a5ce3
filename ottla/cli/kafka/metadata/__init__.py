"""kafka-metadata-quorum, kafka-metadata-shell and kafka-features: the cluster's metadata and levels.

Invariant: the shell reads files alone and needs no node. Read `metadata_shell` first, then `metadata_tree`.
"""
