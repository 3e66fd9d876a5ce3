"""What people do with a cluster, over the admin client, shared by both families of tools.

Invariant: values in, values out; it prints nothing and reads no options. Read `group_view` first: one view of a group
of any kind.
"""
