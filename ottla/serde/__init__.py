"""Bytes to values and back: text, JSON, Avro and Protobuf, as columns (`serde`) or one record at a time (`serializer`).

Invariant: a value that cannot be read is an error with its row, or a null with the reason beside it; never a guess.
Read `serde` first (users import it as `ottla.serde.serde`), then `json`, `avro` or `protobuf`.
"""
