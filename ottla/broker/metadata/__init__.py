"""The metadata log on this node's disk: quorum and controller driven, files, start, registration, formatting.

Invariant: a change is answered when its records are committed and synced; the image follows the log. Read
`metadata_log` first, then `loader`.
"""
