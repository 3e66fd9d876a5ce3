"""The transaction coordinator, pure: one machine a partition of `__transaction_state`.

Invariant: what a transaction will become is in the log before anyone acts on it. After `Prepare…` its end is decided,
and markers may be written again after a crash as often as needed. Read `coordinator` first; `transaction` is one
transactional id's state and its legal steps.

KIPs: 98 transactions, 360 epochs that recover, 447 offsets, 664 listing, 890 epochs that rise with each transaction.
"""
