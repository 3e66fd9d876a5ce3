"""Connections to brokers and an up-to-date view of the cluster, which every client uses.

Invariant: requests are sent in order and answers are matched in order; when a connection breaks, all its pending
requests fail. Read `cluster` first, then `connection`. `metadata` and `inbound` are pure; `wake_loop` is the base of
the sender and the fetchers; `loop_thread` runs the synchronous clients.
"""
