"""Connections to brokers, and the client's fresh view of the cluster: what every client stands on.

Invariant: requests leave in order and answers are matched in order; a broken connection fails all that wait on it. Read
`cluster` first, then `connection`. `metadata` and `inbound` are pure; `wake_loop` is the loop that sender and fetchers
share; `loop_thread` is where the synchronous clients run.
"""
