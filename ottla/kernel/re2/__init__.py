r"""Regular expressions in RE2's language, matched in linear time.

A pattern never backtracks: the time to match is the name's length times the pattern's, whatever a client sends. Read
`pattern` (the language) first, then `automaton` (the matching); `unicode_class` is the table behind `\p{Name}`.
"""
