"""The console producers and consumers, kafka-get-offsets, kafka-delete-records and kafka-dump-log.

Invariant: a line in is a record, a record is a line out, as with Apache's tools. Read `console_consumer` first.
"""
