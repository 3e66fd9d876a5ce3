"""The consumer: positions, fetches ahead of polls, records and tables handed out.

Invariant: a position moves only when records are handed to the program; a commit never passes it. Read `consumer`
first, then `position` and `fetcher`; `sync` is the face for code that does not await.
"""
