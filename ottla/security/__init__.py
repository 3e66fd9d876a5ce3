"""Signing in and TLS: both halves of SASL mechanisms, OAuth tokens and TLS contexts.

Invariant: a mechanism is messages in and messages out; it opens no connection to the broker. Secrets appear in no error
and no log. A client: read `sign_in` first, then `sasl`. A server: `authenticator`, then `verify` and `jaas`.
"""
