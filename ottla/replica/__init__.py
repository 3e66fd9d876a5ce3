"""One partition's replication, pure: the leader's view, who waits for it, and fetch sessions.

Invariant: a consumer never sees past the high watermark, and with `read_committed` never past the last stable offset.
Read `partition` first. A node alone is the whole in-sync set, so its high watermark is the end of its log.
"""
