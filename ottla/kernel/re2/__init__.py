r"""Regular expressions in RE2's syntax, matched in linear time.

Matching never backtracks: it takes at most the length of the name times the length of the pattern, whatever a client
sends. Read `pattern` (the syntax) first, then `automaton` (the matching); `unicode_class` is the table for `\p{Name}`.
"""
