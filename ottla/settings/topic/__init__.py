"""The 34 settings of a topic: their `declaration`, and the typed values in `settings`.

Invariant: each setting names the server setting that it falls back to; the topic's own value takes precedence.
"""
