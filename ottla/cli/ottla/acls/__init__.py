"""`ottla acls`: rules one by one (`acl`), by what people do (`role`), and in words (`shown`)."""
