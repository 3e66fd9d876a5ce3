"""The admin client, on which all command-line tools are built.

Invariant: a call returns what the cluster has confirmed, or raises; errors of single items are in `Results`.
Read `client` first, then `result`; the calls are in `topic`, `config`, `group`, `offset` and `cluster`.
"""
