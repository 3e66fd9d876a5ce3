"""Record batches as columns: the bytes of batches to Arrow arrays and back, without a Python object a record.

Invariant: positions and sizes are arrays; bytes are copied once, in bulk. Only `record` and `encode_records` work
record by record, without NumPy. Read `uniform_layout` first, then `field`, `column` (in) and `encode_columns` (out).
Everything but `record` and `encode_records` needs the extra `ottla[arrow]`.
"""
