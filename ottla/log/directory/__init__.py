"""All logs of a node: its log directories, the store of logs, and how a start opens them.

Invariant: one partition has one log in one directory, and a failed directory takes only its own logs along. Read
`store` first.
"""
