"""What can be set on a group (17 settings; KIP-848, KIP-932, KIP-1071): `declaration`, then the typed values in
`settings`.

Invariant: each setting names the server setting it falls back to, and the server's limits hold for both.
"""
