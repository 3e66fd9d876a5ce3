"""Signing in and TLS: SASL mechanisms, SCRAM, OAuth tokens and TLS contexts.

Invariant: a mechanism is messages in and messages out; it opens no connection to the broker. Secrets appear in no error
and no log. Read `sign_in` first, then `sasl` and the mechanism of interest.
"""
