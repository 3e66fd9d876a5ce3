"""The parts of a task: its queues, and its operators as functions.

Read `waiting.py` (which record is next), `rows.py` (many records at once), then `push.py` (how a record passes through
the operators). `receive.py` deserializes records; `punctuation.py` decides which punctuators are due.
"""
