"""`ottla acls`: rules one by one (`acl`), rules for a role (`role`), and their formatting (`shown`)."""
