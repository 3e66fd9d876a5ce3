"""The 17 settings of a group (KIP-848, KIP-932, KIP-1071): `declaration`, then the typed values in `settings`.

Invariant: each setting names the server setting that it falls back to, and the server's limits apply to both.
"""
