"""kafka-consumer-groups, kafka-share-groups, kafka-streams-groups, kafka-groups, kafka-streams-application-reset.

Invariant: what they print for a group is what Apache's tools print. Read `consumer_group` first.
"""
