"""What can be set on a topic (34 settings): `declaration` says what there is, `settings` gives the typed values.

Invariant: each setting names the server setting it falls back to; the topic's own value wins.
"""
