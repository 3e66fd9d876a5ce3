"""What is written into Kafka's own logs and files: one module a log.

Invariant: bytes that a broker of Apache Kafka 4.x wrote are read, and written again, byte for byte.

`metadata` (with `registration` and `security`) is `__cluster_metadata`; `offset` (with `consumer_group`, `share_group`
and `streams_group`) is `__consumer_offsets`; `transaction` is `__transaction_state`; `share` is `__share_group_state`;
`remote_log` is `__remote_log_metadata`; `control` is what control batches hold. `producer_snapshot`, `aborted_txn` and
`quorum_state` are files; `consumer_protocol` and `principal` are blobs inside requests.
"""
