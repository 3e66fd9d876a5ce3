"""What the group coordinator asks of the share coordinator, how often, and what it tells of its answers."""

import pytest

from ottla.group.event import InitializeShareState
from ottla.group.setting import CoordinatorSettings
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.group.host import Host
from tests.group.test_share_group import CLICKS, ORDERS, Sharer

_RETRY_MS = 30_000


def _begins(host: Host) -> list[dict[object, list[int]]]:
    """The partitions whose state the group coordinator has asked to begin, by call."""
    return [
        {topic_id: list(partitions) for topic_id, partitions in call.offsets.items()}
        for call in host.share_calls
        if isinstance(call, InitializeShareState)
    ]


def test_state_that_is_being_begun_is_asked_for_once_in_a_retry_interval() -> None:
    host = Host(
        CoordinatorSettings(
            group_share_initialize_retry_interval_ms=_RETRY_MS, group_share_session_timeout_ms=2 * _RETRY_MS
        )
    )
    host.share_waits = True
    first, second = Sharer(host, "one", ["orders"]), Sharer(host, "two", ["orders", "clicks"])
    for member in (first, second):
        host.ask(_heartbeat(member), 1)
    whole = {ORDERS: [0, 1, 2, 3]}
    # The second member's topic is new; the state of the first one's is under way.
    assert _begins(host) == [whole, {CLICKS: [0, 1]}]
    host.pass_ms(_RETRY_MS - 1)
    first.epoch = host.group().members["one"].epoch
    host.ask(_heartbeat(first), 1)
    assert len(_begins(host)) == 2
    host.pass_ms(1)
    host.ask(_heartbeat(first), 1)
    assert _begins(host)[2:] == [whole | {CLICKS: [0, 1]}]


def _heartbeat(member: Sharer) -> object:
    topics = member.topics if member.epoch == 0 else None
    return ShareGroupHeartbeatRequest(
        group_id="g", member_id=member.member_id, member_epoch=member.epoch, subscribed_topic_names=topics
    )


@pytest.mark.parametrize("message", ["the log is offline", None])
def test_offsets_that_could_not_be_set_say_why(message: str | None) -> None:
    host = Host()
    host.share_waits = True
    partitions = [AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=7) for index in (0, 1)]
    topic = AlterShareGroupOffsetsRequestTopic(topic_name="orders", partitions=partitions)
    ticket = host.ask(AlterShareGroupOffsetsRequest(group_id="g", topics=[topic]), 0)
    error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message or "")
    host.answer_share_calls({(ORDERS, 1): error})
    host.change_topics()
    (answer,) = host.answers[ticket].responses
    said = [(each.partition_index, each.error_code, each.error_message) for each in answer.partitions]
    assert said == [(0, 0, None), (1, ErrorCode.COORDINATOR_NOT_AVAILABLE, message)]
    assert host.replayed_group().initialized == {}


def test_a_member_that_joins_while_offsets_are_being_set_does_not_set_them_back() -> None:
    host = Host()
    host.share_waits = True
    partitions = [AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=7) for index in range(4)]
    topic = AlterShareGroupOffsetsRequestTopic(topic_name="orders", partitions=partitions)
    host.ask(AlterShareGroupOffsetsRequest(group_id="g", topics=[topic]), 0)
    one = Sharer(host, "one", ["orders"])
    assert one.beat().error_code == 0
    host.share_waits = False
    host.answer_share_calls()
    host.change_topics()
    one.beat()
    assert one.assigned == {ORDERS: [0, 1, 2, 3]}
    assert {start for _, start in host.share_states.values()} == {7}
    assert host.coordinator.shard.share_requested_ms == {}, "an answered call is kept for good"
