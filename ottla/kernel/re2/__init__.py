"""RE2's regular expressions, matched in bounded time: the only engine that a client's expression meets.

Start with `pattern`.
"""
