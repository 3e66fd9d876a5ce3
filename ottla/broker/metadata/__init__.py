"""The metadata log on this node: quorum and controller drivers, files, loading, registration, formatting.

Invariant: a change is answered when its records are committed and flushed; the image follows the log. Read
`metadata_log` first, then `loader`.
"""
