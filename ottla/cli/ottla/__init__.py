"""The commands of `ottla`, one file per command.

Invariant: a command imports heavy modules only when it runs. Read `root` first: it lists all commands and handles their
errors.
"""
