"""Any clients, in any order, with any faults: what must hold of the coordinator always (Hypothesis).

`Host` validates the coordinator after every step: no partition is two members', every request waits or was answered
once, every answer can be encoded. Here it is also compared with what the log alone tells, after every rule.
"""

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.group.coordinator import GroupCoordinator
from ottla.group.setting import CoordinatorSettings
from ottla.group.state.classic import ClassicGroup, ClassicState
from ottla.group.state.consumer import ConsumerGroup
from ottla.kernel.error import ErrorCode
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.group.client import Classic, Consumer, commit_request
from tests.group.host import Host

GROUPS = ["classic", "consumer", "mixed"]
CLIENTS = 4
TOPICS = ["orders", "clicks", "orders-eu"]
slots = st.integers(0, CLIENTS - 1)


def durable(coordinator: GroupCoordinator) -> dict[str, Any]:
    """What the log must tell: groups of consumers whole, classic ones where no rebalance goes on, and all offsets."""
    found: dict[str, Any] = {}
    for group_id, group in coordinator.shard.groups.items():
        if isinstance(group, ConsumerGroup):
            found[group_id] = replace(group, refresh_deadline_ms=0, refresh_epoch=0)
        elif group.state is ClassicState.EMPTY:
            found[group_id] = group.generation
        elif group.state is ClassicState.STABLE:
            members = {
                name: (
                    member.instance_id,
                    member.client_id,
                    member.session_timeout_ms,
                    member.rebalance_timeout_ms,
                    member.metadata(group.protocol_name or ""),
                    member.assignment,
                )
                for name, member in group.members.items()
            }
            found[group_id] = (group.generation, group.protocol_type, group.protocol_name, group.leader, members)
    return found


class Groups(RuleBasedStateMachine):
    """A coordinator and its clients: classic ones in two groups, consumers of the new protocol in two."""

    def __init__(self) -> None:
        super().__init__()
        self.host = Host(CoordinatorSettings(offsets_retention_minutes=30, group_initial_rebalance_delay_ms=1_000))
        self.classics = [
            Classic(
                self.host,
                group_id=group_id,
                version=9 if slot % 2 else 3,
                instance_id=f"i{slot}" if slot == 3 else None,
                protocols=["range", "sticky"] if slot % 2 else ["sticky", "range"],
            )
            for group_id in ("classic", "mixed")
            for slot in range(CLIENTS)
        ]
        self.consumers = [
            Consumer(self.host, f"{group_id}-{slot}", group_id, instance_id=f"i{slot}" if slot >= 2 else None)
            for group_id in ("consumer", "mixed")
            for slot in range(CLIENTS)
        ]
        self.producers = 0
        self.open_producers: list[int] = []
        self.generations: dict[str, tuple[type, int]] = {}

    def classic(self, group: str, slot: int) -> Classic:
        return self.classics[slot + (CLIENTS if group == "mixed" else 0)]

    def consumer(self, group: str, slot: int) -> Consumer:
        return self.consumers[slot + (CLIENTS if group == "mixed" else 0)]

    # -- classic clients

    @rule(group=st.sampled_from(["classic", "mixed"]), slot=slots, topics=st.sets(st.sampled_from(TOPICS), min_size=1))
    def classic_joins(self, group: str, slot: int, topics: set[str]) -> None:
        client = self.classic(group, slot)
        client.topics = sorted(topics)
        client.join()

    @rule(group=st.sampled_from(["classic", "mixed"]), slot=slots)
    def classic_goes_on(self, group: str, slot: int) -> None:
        """Take the answer that came, and do the next thing."""
        client = self.classic(group, slot)
        if client.ticket == 0 or client.waits:
            return
        answer = self.host.answers[client.ticket]
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id, client.ticket = "", 0
        elif answer.error_code:
            client.ticket = 0
        elif hasattr(answer, "generation_id"):
            client.joined()
            client.sync()
        else:
            client.synced()
            client.ticket = 0

    @rule(group=st.sampled_from(["classic", "mixed"]))
    def a_classic_group_settles(self, group: str) -> None:
        """Its members do what they are told, for some seconds."""
        for _ in range(4):
            self.host.pass_ms(2_500)
            for slot in range(CLIENTS):
                client = self.classic(group, slot)
                self.classic_goes_on(group, slot)
                if client.ticket == 0 and client.member_id and client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS:
                    client.join()

    @rule(group=st.sampled_from(["classic", "mixed"]), slot=slots)
    def classic_heartbeats(self, group: str, slot: int) -> None:
        self.classic(group, slot).heartbeat()

    @rule(group=st.sampled_from(["classic", "mixed"]), slot=slots)
    def classic_leaves(self, group: str, slot: int) -> None:
        client = self.classic(group, slot)
        client.leave()
        client.member_id = ""

    @rule(slot=slots)
    def static_member_restarts(self, slot: int) -> None:
        self.classic("classic" if slot % 2 else "mixed", 3).member_id = ""

    # -- clients of the consumer protocol

    @rule(
        group=st.sampled_from(["consumer", "mixed"]),
        slot=slots,
        topics=st.sets(st.sampled_from(TOPICS)),
        regex=st.sampled_from([None, "orders.*", "nothing"]),
        assignor=st.sampled_from([None, "range", "uniform"]),
        suffix=st.sampled_from(["", "x"]),
    )
    def consumer_joins(
        self, group: str, slot: int, topics: set[str], regex: str | None, assignor: str | None, suffix: str
    ) -> None:
        client = self.consumer(group, slot)
        client.member_id = f"{group}-{slot}{suffix}"
        client.topics, client.regex, client.assignor = sorted(topics), regex, assignor
        client.join()

    @rule(group=st.sampled_from(["consumer", "mixed"]), slot=slots, full=st.booleans(), lost=st.booleans())
    def consumer_heartbeats(self, group: str, slot: int, full: bool, lost: bool) -> None:
        client = self.consumer(group, slot)
        if client.epoch <= 0:
            return
        if lost:
            self.host.call(client.request(full=full), 1)
        elif client.beat(full=full).error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            client.epoch, client.owned = 0, {}

    @rule(group=st.sampled_from(["consumer", "mixed"]))
    def a_consumer_group_settles(self, group: str) -> None:
        """Its members do what they are told, for some seconds."""
        for _ in range(4):
            self.host.pass_ms(1_100)
            for slot in range(CLIENTS):
                self.consumer_heartbeats(group, slot, full=True, lost=False)

    @rule(group=st.sampled_from(["consumer", "mixed"]), slot=slots, topics=st.sets(st.sampled_from(TOPICS)))
    def consumer_changes_its_subscription(self, group: str, slot: int, topics: set[str]) -> None:
        client = self.consumer(group, slot)
        if client.epoch > 0:
            client.topics = sorted(topics)
            client.beat()

    @rule(group=st.sampled_from(["consumer", "mixed"]), slot=slots, for_a_while=st.booleans())
    def consumer_leaves(self, group: str, slot: int, for_a_while: bool) -> None:
        client = self.consumer(group, slot)
        client.leave(-2 if for_a_while and client.instance_id else -1)
        client.epoch = 0

    # -- offsets

    @rule(group=st.sampled_from(GROUPS), slot=slots, partition=st.integers(0, 5), topic=st.sampled_from(TOPICS))
    def somebody_commits(self, group: str, slot: int, partition: int, topic: str) -> None:
        if group == "consumer":
            consumer = self.consumer(group, slot)
            member = (consumer.epoch, consumer.member_id, consumer.instance_id)
        else:
            classic = self.classic(group, slot)
            member = (classic.generation, classic.member_id, classic.instance_id)
        self.host.call(commit_request(group, {topic: {partition: self.host.now_ms}}, *member), 9)

    @rule(group=st.sampled_from(GROUPS), partition=st.integers(0, 1))
    def a_producer_commits(self, group: str, partition: int) -> None:
        self.producers += 1
        offset = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=self.producers)
        topics = [TxnOffsetCommitRequestTopic(name="orders", partitions=[offset])]
        request = TxnOffsetCommitRequest(
            transactional_id="t", group_id=group, producer_id=self.producers % 3, topics=topics
        )
        self.host.call(request, 5)
        self.open_producers.append(self.producers % 3)

    @rule(committed=st.booleans())
    def a_transaction_ends(self, committed: bool) -> None:
        if self.open_producers:
            self.host.end_transaction(self.open_producers.pop(), committed=committed)

    @rule(group=st.sampled_from(GROUPS))
    def an_administrator_deletes_a_group(self, group: str) -> None:
        answer = self.host.call(DeleteGroupsRequest(groups_names=[group]), 2)
        if not answer.results[0].error_code:
            self.generations.pop(group, None)

    # -- the world

    @rule(duration_ms=st.sampled_from([0, 1, 900, 1_100, 5_000, 11_000, 31_000, 61_000, 400_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.host.pass_ms(duration_ms)

    @rule(topic=st.sampled_from(TOPICS))
    def a_topic_is_made_or_grows(self, topic: str) -> None:
        count = self.host.topics.partition_count(topic)
        if count == 0:
            self.host.topics.create(topic, 2)
            self.host.change_topics(created=[topic])
        elif count < 6:
            self.host.topics.grow(topic, count + 1)
            self.host.change_topics(changed=[topic])

    @rule(topic=st.sampled_from(TOPICS))
    def a_topic_is_deleted(self, topic: str) -> None:
        topic_id = self.host.topics.topic_id(topic)
        if topic_id is not None:
            self.host.topics.delete(topic)
            self.host.change_topics(deleted=[(topic, topic_id)])

    @rule(refuses=st.sampled_from([None, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_ENOUGH_REPLICAS]))
    def the_log_refuses_records_or_takes_them_again(self, refuses: ErrorCode | None) -> None:
        self.host.refuses = refuses

    @rule()
    def the_coordinator_moves(self) -> None:
        self.host.restart()
        # A rebalance that was going on is forgotten with its generation.
        self.generations.clear()

    # -- what holds

    @invariant()
    def the_log_alone_tells_the_same(self) -> None:
        there, replayed = durable(self.host.coordinator), durable(self.host.replayed())
        for name in self.host.ahead:
            if isinstance(there.get(name), int):
                del there[name]
        assert {name: replayed.get(name) for name in there} == there
        ours, theirs = self.host.coordinator.shard.offsets, self.host.replayed().shard.offsets
        assert ours.committed == theirs.committed and ours.pending == theirs.pending and ours.open == theirs.open

    @invariant()
    def generations_and_epochs_grow(self) -> None:
        groups = self.host.coordinator.shard.groups
        # A group that is deleted, or whose last offset expired, starts anew when it comes again.
        self.generations = {name: known for name, known in self.generations.items() if name in groups}
        for group_id, group in groups.items():
            number = group.generation if isinstance(group, ClassicGroup) else group.epoch
            kind, before = self.generations.get(group_id, (type(group), number))
            # An empty group that gives way to the other kind starts anew; one that is converted goes on.
            assert kind is not type(group) or number >= before or number <= 1
            self.generations[group_id] = (type(group), number)

    def teardown(self) -> None:
        """When all clients fall silent, nobody is left waiting and no group has members."""
        self.host.refuses = None
        self.host.pass_ms(3_600_000)
        assert not self.host.coordinator.open
        assert all(group.is_empty for group in self.host.coordinator.shard.groups.values())


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
