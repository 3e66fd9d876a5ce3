"""Column expressions, pure: what they are, their types, and what they give for one record.

Read `expression.py`, then `kind.py` (types) and `row.py` (one record). `ottla/flow/vector` computes them for columns.
"""
