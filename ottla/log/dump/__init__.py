"""What is in a log's files, for people: batches, indexes, snapshots and decoded records, as kafka-dump-log shows them.

Invariant: reading only; a damaged file is shown as far as it goes, with what is wrong in it. Read `dump_log` first.
"""
