"""The records of Kafka's internal topics and files, one module per log.

Invariant: bytes written by an Apache Kafka 4.x broker are read and written back byte for byte.

`metadata` (with `registration` and `security`) is `__cluster_metadata`; `offset` (with `consumer_group`, `share_group`
and `streams_group`) is `__consumer_offsets`; `transaction` is `__transaction_state`; `share` is `__share_group_state`;
`remote_log` is `__remote_log_metadata`; `control` is the content of control batches. `producer_snapshot`, `aborted_txn`
and `quorum_state` are files; `consumer_protocol` and `principal` are blobs inside requests.
"""
