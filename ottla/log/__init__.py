"""The log of one partition on a disk, and the directory that holds all logs of a node.

The files are Apache Kafka's, byte for byte. Invariant: synced records are never lost and torn batches are never served;
everything below `Log.recovery_point` survives a power failure.

Read `log` first (append, read, sync), then `segment`. `recovery` opens a directory, `retention` deletes and truncates,
`producer` keeps sequences and transactions, `cleaning` compacts, `directory` holds all logs of a node, `dump` prints
files. Not obvious: index files are written late and rebuilt after a crash (decision 0170), and appends hardly ever look
at the records inside a batch (0342).
"""
