"""kafka-consumer-groups, kafka-share-groups, kafka-streams-groups, kafka-groups, kafka-streams-application-reset.

Invariant: the output for a group is that of Apache's tools. Read `consumer_group` first.
"""
