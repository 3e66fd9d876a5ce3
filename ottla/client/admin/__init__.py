"""The admin client: all that the command-line tools stand on.

Invariant: a call returns what the cluster has confirmed, or raises; errors of single things are in `Results`.
Read `client` first, then `result`; the calls are in `topic`, `config`, `group`, `offset` and `cluster`.
"""
