"""The console producers and consumers, kafka-get-offsets, kafka-delete-records and kafka-dump-log.

Invariant: an input line is a record, and a record is an output line, as in Apache's tools. Read `console_consumer`
first.
"""
