"""kafka-acls and kafka-delegation-tokens.

Invariant: no secret is shown that was not asked for; lines and errors are those of Apache's tools.
"""
