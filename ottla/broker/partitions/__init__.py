"""The partitions that this node leads and their logs: made, flushed, cleaned, trimmed, moved between disks.

Invariant: a log is made and closed beside the loop, and taken into service on it. Read `leadership` first.
"""
