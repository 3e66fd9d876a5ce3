"""Records as Arrow columns. Needs pyarrow (the extra `ottla[arrow]`): the engine works without this package.

`columns.py`: records of a partition as they come, and how their keys and values are read.
"""
