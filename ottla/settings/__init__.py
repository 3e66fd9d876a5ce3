"""Settings: how each is declared, what a file, a topic, a group or a client program may say, and what follows from it.

Invariant: one declaration gives a setting's text form, checks, default, dynamic mode and documentation; nothing else
knows its default. Read `schema` first, then `server.settings`. Only values: nothing here opens, connects or waits.
"""
