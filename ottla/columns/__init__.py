"""Record batches as columns: converts batches to Arrow arrays and back, without a Python object per record.

Invariant: positions and sizes are arrays; bytes are copied once, in bulk. Only `record` and `encode_records` work
record by record, without NumPy. Read `uniform_layout` first, then `field`, `column` (decoding) and `encode_columns`.
All modules but `record` and `encode_records` need the extra `ottla[arrow]`.
"""
