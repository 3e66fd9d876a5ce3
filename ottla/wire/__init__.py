"""Encodes and decodes Kafka's requests, responses, record batches and internal records. No I/O.

Invariant: a reader returns a value or raises `Malformed` for any bytes, and its memory is proportional to its input.

Read `schema` first (the declarations), then `api/produce.py` (an example) and `compile` (the generated functions).
`batch` and `codec` are the record batches; `header` is the header of each message.
"""
