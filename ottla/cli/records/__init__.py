"""Records between files, terminals and topics: what `ottla produce`, `consume`, `import` and `export` share.

Invariant: input, fields, templates and expressions are pure; only `read` and `write` meet a cluster. Read `field`
first.
"""
