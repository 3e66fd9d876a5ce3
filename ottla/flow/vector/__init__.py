"""Records as Arrow columns. Needs pyarrow (the extra `ottla[arrow]`); the engine works without this package.

Read `columns.py` (records of a partition and how they are deserialized), `evaluate.py` (expressions), then `region.py`
(the steps of a task that work on columns).
"""
