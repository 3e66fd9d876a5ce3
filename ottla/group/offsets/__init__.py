"""The handlers of OffsetCommit, TxnOffsetCommit and OffsetDelete (`commit`) and of OffsetFetch (`fetch`).

Invariant: an offset is committed when its record is; the offsets of an open transaction are not visible.
"""
