"""Requests about committed offsets: OffsetCommit, TxnOffsetCommit, OffsetDelete (`commit`) and OffsetFetch (`fetch`).

Invariant: an offset is committed when its record is; what an open transaction holds back is not seen.
"""
