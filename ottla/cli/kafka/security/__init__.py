"""kafka-acls and kafka-delegation-tokens.

Invariant: no secret is shown unless requested; output and errors are those of Apache's tools.
"""
