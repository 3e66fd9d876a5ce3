"""Print a log's files: batches, indexes, snapshots and decoded records, as kafka-dump-log does.

Invariant: files are only read; a damaged file is printed up to the damage, which is named. Read `dump_log` first.
"""
