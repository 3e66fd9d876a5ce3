"""Authentication and TLS: both halves of the SASL mechanisms, OAuth tokens and TLS contexts.

Invariant: a mechanism is messages in and messages out; it opens no connection to the broker. No error and no log holds
a secret. For the client, read `sign_in` first, then `sasl`; for the server `authenticator`, then `verify` and `jaas`.
"""
