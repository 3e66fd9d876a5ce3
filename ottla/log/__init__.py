"""The log: one partition's bytes on a disk, and all of a node's.

What is on the disk is Apache Kafka's format, byte for byte. Invariant: what was synced is never lost, what was torn is
never served; everything below `Log.recovery_point` survives a power failure.

Read `log` first (append, read, sync), then `segment`; `recovery` opens a directory, `retention` makes logs shorter,
`producer` keeps sequences and transactions, `cleaning` compacts, `directory` holds all logs of a node, `dump` shows
files. Not obvious: index files are written behind and rebuilt after a crash (decision 0170), and the bodies of batches
are hardly ever looked at (0342).
"""
