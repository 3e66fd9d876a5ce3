"""Requests about very many share groups, topics or partitions: no step of the loop grows with them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from ottla.broker.handlers.share_acknowledge import share_acknowledge
from ottla.broker.handlers.share_offset import describe_share_group_offsets
from ottla.broker.handlers.share_state import share_state
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.share import answer
from ottla.share.state import UNSET_COUNT
from ottla.wire.api import delete_share_group_state as delete
from ottla.wire.api import describe_share_group_offsets as offsets
from ottla.wire.api import share_acknowledge as acks
from ottla.wire.compile import Deferred
from tests.broker.table_node import called, done

_ID = Uuid(b"i" * 16)
_MANY = 6000
_SETTINGS = Mock(group_coordinator_rebalance_protocols=["share"])


def _ids(count: int) -> list[Uuid]:
    return [Uuid(number.to_bytes(16, "big")) for number in range(1, count + 1)]


def _image(topics: dict[str, Any]) -> Any:
    return Mock(topics=topics, features={"share.version": 1})


# ---- offsets of share groups


class _Persister:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.open: list[Callable[[], None]] = []
        self.asked: list[int] = []

    def summary(self, key: Any, done: Callable[[Any], None]) -> None:
        self.asked.append(key.partition)
        found = SimpleNamespace(start_offset=key.partition, leader_epoch=1, delivery_complete_count=UNSET_COUNT)
        self.open.append(lambda: done(found))


def _asked_offsets(persister: Any, request: offsets.DescribeShareGroupOffsetsRequest) -> tuple[Any, Any]:
    call = called(1, persister=persister, settings=_SETTINGS, image=_image({"t": Mock(topic_id=_ID)}))
    return describe_share_group_offsets(call, request), call


def test_groups_without_topics_are_looked_at_in_steps() -> None:
    names = [f"g{number}" for number in range(100)]
    groups = [offsets.DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=[]) for name in names]
    reply, call = _asked_offsets(_Persister(), offsets.DescribeShareGroupOffsetsRequest(groups=groups))
    steps = 1
    while call.turns:
        call.turns.pop(0)()
        steps += 1
    assert steps == 5
    assert [each.group_id for each in reply.value.groups] == names


def test_few_questions_about_many_partitions_wait_at_once() -> None:
    persister = _Persister()
    topic = offsets.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=list(range(_MANY)))
    group = offsets.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[topic])
    reply, call = _asked_offsets(persister, offsets.DescribeShareGroupOffsetsRequest(groups=[group]))
    most = 0
    while not reply.resolved:
        while call.turns:
            call.turns.pop(0)()
        most = max(most, len(persister.open))
        assert persister.open or reply.resolved, "it waits for nothing"
        # As when the topic of the states is there at last: all that wait are answered in one turn.
        waiting, persister.open = persister.open, []
        for answered in waiting:
            answered()
    assert most == 2000
    assert persister.asked == list(range(_MANY))
    (found,) = reply.value.groups[0].topics
    assert [(each.partition_index, each.start_offset) for each in found.partitions] == [(at, at) for at in range(_MANY)]


# ---- states of share partitions


def _deletion(ids: list[Uuid]) -> delete.DeleteShareGroupStateRequest:
    topics = [delete.DeleteStateData(topic_id=each, partitions=[delete.PartitionData(partition=7)]) for each in ids]
    return delete.DeleteShareGroupStateRequest(group_id="g", topics=topics)


def test_the_states_of_many_topics_are_merged_while_the_response_is_written() -> None:
    def ask(request: Any, version: int, answered: Callable[[Any], None]) -> None:
        ((key, _),) = answer.split(request)
        answered(answer.deleted(key))

    ids = _ids(1000)
    call = called(0, share_states=Mock(driver_of=lambda text: Mock(ask=ask)))
    # One topic comes twice, and is answered once.
    results = done(share_state(call, _deletion([*ids, ids[1]])), call).results
    assert isinstance(results, Deferred)
    assert [each.topic_id for each in results] == ids
    assert [len(each.partitions) for each in results] == [1, 2, *[1] * 998]


def test_a_request_for_states_that_fails_as_a_whole_has_its_error_at_each_partition() -> None:
    ids = _ids(1000)
    error = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
    request = _deletion(ids)
    request.topics.append(delete.DeleteStateData(topic_id=_ID))
    results = answer.failed(request, error).results
    assert isinstance(results, Deferred)
    assert [(each.topic_id, [part.partition for part in each.partitions]) for each in results] == [
        (each, [7]) for each in ids
    ]
    codes = {(part.error_code, part.error_message) for each in results for part in each.partitions}
    assert codes == {(error.code, "no")}


# ---- acknowledgements


def test_the_response_to_acknowledgements_of_many_topics_is_made_while_it_is_written() -> None:
    ids = _ids(1000)
    topics = [acks.AcknowledgeTopic(topic_id=each, partitions=[acks.AcknowledgePartition()]) for each in ids]
    request = acks.ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=1, topics=topics)
    shares = Mock(settings_of=lambda group: Mock(share_record_lock_duration_ms=9))
    call = called(2, shares=shares, topic_name=lambda topic_id: None, settings=_SETTINGS, image=_image({}))
    responses = done(share_acknowledge(call, request), call).responses
    assert isinstance(responses, Deferred)
    assert [(each.topic_id, each.partitions[0].error_code) for each in responses] == [
        (each, ErrorCode.UNKNOWN_TOPIC_ID) for each in ids
    ]
