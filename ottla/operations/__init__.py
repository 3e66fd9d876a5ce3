"""Operations on a cluster over the admin client, shared by both families of tools and the console.

Invariant: values in, values out; no module prints or reads options. Read `group_view` first: one view of a group
of any kind.
"""
