"""Bytes to messages and back, without any I/O: Kafka's requests, responses, record batches and internal records.

Invariant: a reader answers any bytes at all with a value or with `Malformed`, and needs memory only in proportion to
the bytes that it was given.

Read `schema` first (how a message is declared), then `api/produce.py` (a declaration) and `compile` (what becomes of
it). `batch` and `codec` are the record batches; `frame` and `header` are what stands before each message.
"""
