"""The share consumer (KIP-932): records acquired, handed out and acknowledged one by one.

Invariant: every record handed out is acknowledged once, or its lock runs out on the broker. Read `consumer` first, then
`acknowledgement` (pure) and `fetcher`.
"""
