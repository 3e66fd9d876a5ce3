"""The share consumer (KIP-932): records are acquired, delivered and acknowledged one by one.

Invariant: every delivered record is acknowledged once, or its lock on the broker expires. Read `consumer` first, then
`acknowledgement` (pure) and `fetcher`.
"""
