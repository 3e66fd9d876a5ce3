"""Settings: their declarations, and the typed values of servers, topics, groups and clients.

Invariant: one declaration defines a setting's text form, checks, default, dynamic mode and documentation; no default is
written anywhere else. Read `schema` first, then `server.settings`. Values only: nothing here opens, connects or waits.
"""
