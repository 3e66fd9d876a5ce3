"""Compaction: which part of a log is cleaned (`plan`), rewritten (`job`) and put in place (`swap`).

Invariant: a cleaned log reads as the old one does for every key's latest record, and a crash leaves either the old
segments or the new. Read `plan` first; `offset_map`, `batch` and `transaction` are what a job works with.
"""
