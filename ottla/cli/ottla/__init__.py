"""The commands of `ottla`, one file a command.

Invariant: a command's heavy imports happen when it runs. Read `root` first: it knows all commands and what happens when
one of them cannot go on.
"""
