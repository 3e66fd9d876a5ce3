"""All logs of a node: its log directories, the store, and opening and closing them.

Invariant: a partition has one log in one directory, and a failed directory takes only its own logs offline. Read
`store` first.
"""
