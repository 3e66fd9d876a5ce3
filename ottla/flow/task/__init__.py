"""The parts of a task: its queues and operators as functions.

Read `waiting.py` (which record is next), `rows.py` (many records at once), then `push.py` (how a record goes through
the operators); `receive.py` reads keys and values, `punctuation.py` says which punctuators are due.
"""
