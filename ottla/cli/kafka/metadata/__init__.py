"""kafka-metadata-quorum, kafka-metadata-shell and kafka-features: the metadata quorum, metadata and feature levels.

Invariant: the shell only reads files and needs no node. Read `metadata_shell` first, then `metadata_tree`.
"""
