"""Conversion of bytes to values and back: text, JSON, Avro and Protobuf, by columns (`serde`) or by record
(`serializer`).

Invariant: a value that cannot be read is an error that names its row, or a null with the reason beside it, never a
guess. Read `serde` first (users import it as `ottla.client.serde`), then `json`, `avro` or `protobuf`.
"""
