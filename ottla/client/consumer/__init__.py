"""The consumer: positions, fetching ahead of polls, and polls that return records or tables.

Invariant: a position moves only when records are returned to the program; a commit never passes it. Read `consumer`
first, then `position` and `fetcher`; `sync` is the synchronous client.
"""
