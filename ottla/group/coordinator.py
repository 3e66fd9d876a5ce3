"""The coordinator of one partition of `__consumer_offsets`: the entry points for events, records and time.

The driver works as `ottla.coordinator.contract` says.

Invariants: each `Called` is answered exactly once; replaying the log into an empty coordinator gives the same durable
state; `validate` checks the rest.
"""

from collections import deque
from collections.abc import Callable

from ottla.coordinator.contract import Answer, Called, Loaded, TimePassed, independent
from ottla.group.classic.join import join_group
from ottla.group.classic.sync import heartbeat, leave_group, sync_group
from ottla.group.consumer.heartbeat import consumer_heartbeat
from ottla.group.consumer.membership import expire_rebalance, fence, request_topic_refresh, start_sessions
from ottla.group.deletion import delete_groups, expire_group, forget_topics
from ottla.group.description import describe_consumer_groups, describe_groups, list_groups
from ottla.group.event import (
    Effect,
    Event,
    HeartbeatSuperseded,
    HeldHeartbeat,
    SettingsChanged,
    ShareStateAnswered,
    TopicsChanged,
)
from ottla.group.failure import failure, fit
from ottla.group.offsets.commit import commit_offsets, commit_transactional_offsets, delete_offsets
from ottla.group.offsets.fetch import fetch_offsets
from ottla.group.rebalance import (
    complete_join,
    expire_session,
    expire_sync,
    keep_alive,
    prepare_rebalance,
    prolong_or_complete_initial,
)
from ottla.group.records.replay import CONSUMER_RECORDS, replay_classic, replay_offset
from ottla.group.records.replay_share import SHARE_RECORDS
from ottla.group.records.replay_streams import STREAMS_RECORDS
from ottla.group.setting import CoordinatorSettings
from ottla.group.share.description import describe_share_groups
from ottla.group.share.heartbeat import (
    end_hold,
    release_held,
    resume_heartbeat,
    share_deadline,
    share_heartbeat,
    start_share_sessions,
)
from ottla.group.share.state import alter_share_offsets, delete_share_offsets, forget_state
from ottla.group.state.classic import ClassicGroup, ClassicState
from ottla.group.state.consumer import ConsumerGroup
from ottla.group.state.shard import CommandContext, Shard
from ottla.group.state.share import ShareGroup
from ottla.group.state.streams import StreamsGroup
from ottla.group.streams.description import describe_streams_groups
from ottla.group.streams.heartbeat import start_streams_sessions, streams_deadline, streams_heartbeat
from ottla.group.streams.target import end_initial_delay
from ottla.group.timer import Alarm, TimerKey
from ottla.group.topic import TopicView
from ottla.kernel.error import KafkaError
from ottla.kernel.now import Now
from ottla.kernel.ports import Rng
from ottla.wire.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest
from ottla.wire.api.leave_group import LeaveGroupRequest
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.offset_commit import OffsetCommitRequest
from ottla.wire.api.offset_delete import OffsetDeleteRequest
from ottla.wire.api.offset_fetch import OffsetFetchRequest
from ottla.wire.api.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.api.streams_group_describe import StreamsGroupDescribeRequest
from ottla.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.wire.api.sync_group import SyncGroupRequest
from ottla.wire.api.txn_offset_commit import TxnOffsetCommitRequest
from ottla.wire.record.offset import GroupMetadataKey, LegacyOffsetCommitKey, OffsetCommitKey, parse

#: The handler of each request that a `Called` may carry.
REQUESTS: dict[type, Callable[[CommandContext, Called], None]] = {
    JoinGroupRequest: join_group,
    SyncGroupRequest: sync_group,
    HeartbeatRequest: heartbeat,
    LeaveGroupRequest: leave_group,
    OffsetCommitRequest: commit_offsets,
    OffsetFetchRequest: fetch_offsets,
    OffsetDeleteRequest: delete_offsets,
    TxnOffsetCommitRequest: commit_transactional_offsets,
    DeleteGroupsRequest: delete_groups,
    DescribeGroupsRequest: describe_groups,
    ListGroupsRequest: list_groups,
    ConsumerGroupHeartbeatRequest: consumer_heartbeat,
    ConsumerGroupDescribeRequest: describe_consumer_groups,
    ShareGroupHeartbeatRequest: share_heartbeat,
    ShareGroupDescribeRequest: describe_share_groups,
    AlterShareGroupOffsetsRequest: alter_share_offsets,
    DeleteShareGroupOffsetsRequest: delete_share_offsets,
    StreamsGroupHeartbeatRequest: streams_heartbeat,
    StreamsGroupDescribeRequest: describe_streams_groups,
}

#: A check of the offsets' retention looks at about so many in one step of the loop, and always at a whole group.
_EXPIRY_OFFSETS = 1_000

#: The replay functions of the records of consumer, share and streams groups, by key class.
_REPLAY_FUNCTIONS = {**CONSUMER_RECORDS, **SHARE_RECORDS, **STREAMS_RECORDS}


class GroupCoordinator:
    """The groups of one partition. The driver creates it, replays the log into it, and drops it."""

    def __init__(self, partition: int, settings: CoordinatorSettings, rng: Rng, topics: TopicView) -> None:
        self.partition = partition
        self.shard = Shard(settings, rng, topics)
        #: Is the log replayed and does this node lead? Then the joins in memory are authoritative.
        self.leading = False
        #: Ticket -> version of each request that is not answered yet.
        self.open: dict[int, int] = {}
        #: The groups that the running check of the offsets' retention has not looked at, and when the next one begins.
        self._expiring: deque[str] = deque()
        self._next_check_ms = 0

    # -- time and events

    def deadline_ms(self) -> int | None:
        """When `TimePassed` is due, in monotonic time; None without deadlines."""
        return self.shard.timers.next_ms() if self.leading else None

    def step(self, event: Event, now: Now) -> list[Effect]:
        """The effects of an event, to be carried out in order before the next step."""
        self.shard.begin_step()
        effects = self._handle(event, now)
        for index, effect in enumerate(effects):
            if isinstance(effect, Answer):
                version = self.open.pop(effect.ticket)
                effects[index] = Answer(effect.ticket, fit(effect.response, version))
        return effects

    def refused(self, ticket: int) -> None:
        """Take back the last step, whose records the log has refused; the driver answers its request, if any."""
        self.shard.undo_step()
        self.open.pop(ticket, None)

    def _handle(self, event: Event, now: Now) -> list[Effect]:
        match event:
            case Called():
                return self._called(event, now)
            case TimePassed():
                return self._time_passed(now)
            case TopicsChanged():
                return self._topics_changed(event, now)
            case SettingsChanged():
                self.shard.settings = event.settings
                self.shard.overrides = dict(event.overrides)
                return []
            case Loaded():
                return self._loaded(now)
            case ShareStateAnswered():
                return self._share_state_answered(event, now)
            case HeldHeartbeat():
                context = CommandContext(self.shard, now)
                resume_heartbeat(context, event)
                return context.effects()
            case HeartbeatSuperseded():
                context = CommandContext(self.shard, now)
                release_held(context, event.ticket)
                return context.effects()

    def _called(self, call: Called, now: Now) -> list[Effect]:
        assert self.leading, "requests come after Loaded"
        assert call.ticket not in self.open, f"ticket {call.ticket} is in use"
        self.open[call.ticket] = call.version
        context = CommandContext(self.shard, now, call.may_describe, call.selected)
        try:
            REQUESTS[type(call.request)](context, call)
        except KafkaError as error:
            # Handlers raise before they change anything in memory; their records are dropped.
            context = CommandContext(self.shard, now)
            context.answer(call.ticket, failure(call.request, call.version, error))
        return context.effects()

    def _time_passed(self, now: Now) -> list[Effect]:
        # Handle one deadline per step: its records must be replayed before the next one. Further due deadlines leave
        # `deadline_ms` in the past.
        key = self.shard.timers.take_due(now.monotonic_ms)
        if key is None:
            return []
        if key.alarm is Alarm.RETENTION:
            return self._expire(now)
        context = CommandContext(self.shard, now)
        group = self.shard.groups.get(key.group_id)
        if key.alarm is Alarm.SHARE_HOLD:
            end_hold(context, key.group_id, key.member_id)
        elif isinstance(group, ClassicGroup):
            _classic_deadline(context, group, key)
        elif isinstance(group, ConsumerGroup):
            _consumer_deadline(context, group, key)
        elif isinstance(group, ShareGroup):
            share_deadline(context, group, key)
        elif isinstance(group, StreamsGroup):
            if key.alarm is Alarm.STREAMS_INITIAL:
                end_initial_delay(context, group)
            else:
                streams_deadline(context, group, key)
        return context.effects()

    def _share_state_answered(self, event: ShareStateAnswered, now: Now) -> list[Effect]:
        context = CommandContext(self.shard, now)
        self.shard.share_calls.pop(event.call_id).on_answer(context, event.errors)
        return context.effects()

    def _expire(self, now: Now) -> list[Effect]:
        """Delete the expired offsets of some groups; a check of many groups takes several steps."""
        shard = self.shard
        if not self._expiring:
            self._expiring.extend(shard.groups)
            self._next_check_ms = now.monotonic_ms + shard.settings.offsets_retention_check_interval_ms
        groups, looked = [], 0
        while self._expiring and looked < _EXPIRY_OFFSETS:
            group = shard.groups.get(self._expiring.popleft())
            if group is not None:
                groups.append(group)
                looked += 1 + sum(map(len, shard.offsets.of_group(group.group_id).values()))
        shard.timers.set(TimerKey(Alarm.RETENTION), now.monotonic_ms if self._expiring else self._next_check_ms)
        # What the log refuses now waits for the next check.
        shard.begin_step()
        effects: list[Effect] = []
        for group in groups:
            context = CommandContext(shard, now)
            expire_group(context, group)
            effects += context.effects()
        return effects

    def _topics_changed(self, event: TopicsChanged, now: Now) -> list[Effect]:
        self.shard.topics = event.topics
        if event.created:
            self.shard.topics_created_version = event.topics.version
        if not self.leading:
            return []
        # Every group with offsets is in `groups`: its first offset creates it.
        groups = self.shard.groups
        if event.groups is not None:
            groups = {name: groups[name] for name in event.groups if name in groups}
        names = [*event.created, *event.changed, *(name for name, _ in event.deleted)]
        request_topic_refresh(groups.values(), names)
        context = CommandContext(self.shard, now)
        if event.deleted:
            for group_id, group in groups.items():
                forget_topics(context, group_id, event.deleted, event.log_end)
                if isinstance(group, ShareGroup):
                    forget_state(context, group, [topic_id for _, topic_id in event.deleted])
        # A group whose record is too large for the log must not hold up the others.
        return [*independent(context.entries)]

    def _loaded(self, now: Now) -> list[Effect]:
        self.leading = True
        shard = self.shard
        shard.topics_created_version = shard.topics.version
        context = CommandContext(shard, now)
        context.alarm_in(TimerKey(Alarm.RETENTION), shard.settings.offsets_retention_check_interval_ms)
        for group in shard.groups.values():
            if isinstance(group, ConsumerGroup):
                start_sessions(context, group)
                continue
            if isinstance(group, ShareGroup):
                start_share_sessions(context, group)
                continue
            if isinstance(group, StreamsGroup):
                start_streams_sessions(context, group)
                continue
            for member in group.members.values():
                keep_alive(context, group, member)
            if len(group.members) > shard.settings.group_max_size:
                # The limit was lowered: have the members rejoin and refuse the last ones.
                prepare_rebalance(context, group)
        return context.effects()

    # -- records

    def replay(self, key: bytes, value: bytes | None, *, offset: int, producer_id: int = -1) -> None:
        """Apply a record of the log. With a producer id it belongs to a transaction that has not ended."""
        record_key, record_value = parse(key, value)
        match record_key:
            case OffsetCommitKey() | LegacyOffsetCommitKey():
                replay_offset(self.shard, record_key, record_value, offset, producer_id)
            case GroupMetadataKey():
                replay_classic(self.shard, record_key, record_value, self.leading)
            case _:
                fold = _REPLAY_FUNCTIONS.get(type(record_key))
                if fold is not None:
                    fold(self.shard, record_key, record_value)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker that ends a transaction: its offsets become visible or are dropped."""
        self.shard.offsets.end_transaction(producer_id, committed)

    # -- invariants

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self.shard.offsets.validate()
        waiting: list[int] = []
        for group_id, group in self.shard.groups.items():
            assert group.group_id == group_id
            group.validate()
            if isinstance(group, ClassicGroup):
                waiting += [*group.joins.values(), *group.syncs.values()]
        waiting += [call.ticket for asked in self.shard.share_calls.values() for call in asked.calls]
        waiting += self.shard.held
        assert sorted(waiting) == sorted(self.open), "a request waits for nothing, or is answered and waits"
        assert set(self.shard.offsets.committed) <= set(self.shard.groups)


def _classic_deadline(context: CommandContext, group: ClassicGroup, key: TimerKey) -> None:
    match key.alarm:
        case Alarm.CLASSIC_SESSION:
            expire_session(context, group, key.member_id)
        case Alarm.CLASSIC_INITIAL_JOIN:
            prolong_or_complete_initial(context, group)
        case Alarm.CLASSIC_JOIN:
            complete_join(context, group)
        case Alarm.CLASSIC_SYNC:
            expire_sync(context, group)
        case Alarm.CLASSIC_REBALANCE:
            if group.state is ClassicState.STABLE:
                prepare_rebalance(context, group)
        case _:
            # A deadline from before the group was converted from a consumer group.
            return


def _consumer_deadline(context: CommandContext, group: ConsumerGroup, key: TimerKey) -> None:
    if key.member_id not in group.members:
        return
    match key.alarm:
        case Alarm.SESSION | Alarm.MEMBER_JOIN | Alarm.MEMBER_SYNC:
            fence(context, group, [group.members[key.member_id]])
        case Alarm.REBALANCE:
            expire_rebalance(context, group, group.members[key.member_id])
        case _:
            return
