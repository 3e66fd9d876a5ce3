"""The shell around the machines: a node, its dispatch, its handlers and its drivers.

Invariant: handlers are plain functions that run to their end before the next request is looked at, so the order of
arrival is the order of the log. Read `node` first; then follow one request: `dispatch`, `handlers/produce`,
`ottla.replica.partition`. `call` is what handlers are given; `metadata`, `partitions`, `coordinators`, `share` and
`limits` are what they use.

Not obvious: a node is single-threaded. What would block (fsync, deleting files) runs on its small thread pool and
comes back to the loop as a callback.
"""
