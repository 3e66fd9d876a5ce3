"""Column expressions, their types, and their evaluation for one record, without Arrow.

Read `expression.py`, then `kind.py` (types) and `row.py` (one record). `ottla/flow/vector` evaluates them on columns.
"""
