"""The transaction coordinator, pure: one state machine per partition of `__transaction_state`.

Invariant: a transaction's outcome is in the log before any marker is written. `Prepare…` decides the outcome; after a
crash the markers may be written again as often as needed. Read `coordinator` first; `transaction` is the state of one
transactional id and its legal transitions.

KIPs: 98 (transactions), 360 (epoch recovery), 447 (offsets), 664 (listing), 890 (an epoch per transaction).
"""
