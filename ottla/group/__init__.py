"""The group coordinator: classic, consumer, share and streams groups and the offsets they commit. Pure.

One `GroupCoordinator` holds one partition of `__consumer_offsets`: `step(event, now) -> [effect]` and `replay(record)`.
Read `coordinator` first (what the driver does stands there), then `event`, then by what you need:

    shard, timer, topic, setting      what a step works on
    classic                           a classic group; its protocol in join, rebalance, sync
    modern                            what the groups have in common for which the server assigns
    consumer                          a consumer group (KIP-848); its protocol in heartbeat, membership, revision,
                                      target, reconciliation; the assignors in assignor, its expressions in pattern
    conversion, migration             a group changes its kind while it lives; classic members of a consumer group
    share_group                       a share group (KIP-932); its protocol in share_heartbeat, what it has the share
                                      coordinator hold in share_state, its records in share_record and share_replay
    streams_group, streams_task       a streams group (KIP-1071); its protocol in streams_heartbeat, its topology in
                                      streams_topology, held against the topics in streams_configuration; its tasks in
                                      streams_target, streams_assignor, streams_reconciliation; where they are in
                                      streams_endpoint; its records in streams_record and streams_replay
    offset, commit, fetch, deletion   committed offsets
    description, failure              what people see; what a failed request is answered
    record, replay, subscription      bytes to state and back

Invariant: what is durable changes by `replay` only, on the leader as on load, so that replaying the log into an empty
coordinator gives the same groups. What is not durable, joins that wait and deadlines, is the leader's own and is lost
with it; members then join again.
"""

from ottla.group.consumer.assignor import ASSIGNORS
from ottla.group.coordinator import REQUESTS, GroupCoordinator
from ottla.group.event import (
    Answer,
    Append,
    Called,
    Continue,
    DeleteShareState,
    Effect,
    Entry,
    Event,
    InitializeShareState,
    Loaded,
    Resigned,
    SettingsChanged,
    ShareStateAnswered,
    TimePassed,
    TopicsChanged,
)
from ottla.group.failure import append_error, failure
from ottla.group.setting import CoordinatorSettings, GroupOverride
from ottla.group.topic import TopicView

__all__ = [
    "ASSIGNORS",
    "REQUESTS",
    "Answer",
    "Append",
    "Called",
    "Continue",
    "GroupCoordinator",
    "DeleteShareState",
    "Effect",
    "Entry",
    "Event",
    "GroupOverride",
    "CoordinatorSettings",
    "InitializeShareState",
    "Loaded",
    "Resigned",
    "SettingsChanged",
    "ShareStateAnswered",
    "TimePassed",
    "TopicView",
    "TopicsChanged",
    "append_error",
    "failure",
]
