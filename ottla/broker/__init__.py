"""The shell around the machines: a node, its dispatch, its handlers and its drivers.

Invariant: handlers are plain functions that run to the end before the loop looks at the next request, so the order of
arrival is the order of the log. Read `node` first; then follow one request: `dispatch`, `handlers/produce`,
`ottla.replica.partition`. `call` holds what handlers get and return; `metadata`, `partitions`, `coordinators`, `share`
and `limits` are what they use.

Not obvious: a node is single-threaded. Blocking work (fsync, deleting files) runs on its small thread pool and returns
to the loop as a callback.
"""
