"""Consumer groups (KIP-848): the heartbeat, the target that the server assigns, each member's way to it.

Invariant: no member waits for another; each gives up what it must and takes what is free. Read `heartbeat` first.
"""
