"""Compaction: choose the part of a log to clean (`plan`), rewrite it (`job`), and put it in place (`swap`).

Invariant: a cleaned log still has the latest record of every key, and a crash leaves either the old segments or the new
ones. Read `plan` first; a job uses `offset_map`, `batch` and `transaction`.
"""
