"""Hints to the new leader beside errors: which errors have one, from which version, and one address for each node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.call.leader_hint import hint_to_consumer, hint_to_producer, hint_to_share_member
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import NO_UUID, Uuid
from ottla.wire.api import fetch, produce, share_fetch

_ID, _UNKNOWN = Uuid(b"t" * 16), Uuid(b"u" * 16)
_NOT_LEADER, _FENCED = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH
_NODE = (2, "two", 9092, "r")


def _call(version: int) -> Any:
    """A call to a node of topic "t": partitions 0 and 1 have leader 2, partition 2 has one that is not alive."""
    alive = {2: SimpleNamespace(node_id=2, host="two", port=9092, rack="r")}
    topic = SimpleNamespace(
        partitions=[SimpleNamespace(leader=leader, leader_epoch=5 + leader) for leader in (2, 2, 3)]
    )

    def brokers_at(listener: str) -> Any:
        assert listener == "INSIDE"
        return SimpleNamespace(alive_node=alive.get)

    return SimpleNamespace(
        version=version,
        connection=SimpleNamespace(listener_name="INSIDE"),
        node=SimpleNamespace(
            image=SimpleNamespace(topics={"t": topic}), topic_name={_ID: "t"}.get, brokers_at=brokers_at
        ),
    )


def _nodes(response: Any) -> list[tuple[int, str, int, str | None]]:
    return [(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]


def _leader(part: Any) -> tuple[int, int]:
    return part.current_leader.leader_id, part.current_leader.leader_epoch


@pytest.mark.parametrize(("name", "topic_id"), [("t", NO_UUID), ("", _ID)])
def test_a_producer_is_told_the_leaders_of_what_is_not_led_here(name: str, topic_id: Uuid) -> None:
    codes = [_NOT_LEADER, _NOT_LEADER, _NOT_LEADER, _NOT_LEADER, _FENCED, ErrorCode.NONE]
    parts = [
        produce.PartitionProduceResponse(index=index, error_code=code)
        for index, code in zip((0, 1, 2, 3, 0, 1), codes, strict=True)
    ]
    response = produce.ProduceResponse(
        responses=[produce.TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=parts)]
    )
    assert hint_to_producer(_call(10), response) is response
    # Partition 3 does not exist; a fenced epoch is no error of producers.
    assert [_leader(each) for each in parts] == [(2, 7), (2, 7), (3, 8), (-1, -1), (-1, -1), (-1, -1)]
    assert _nodes(response) == [_NODE]


def test_a_producer_of_an_earlier_version_is_told_no_leader() -> None:
    part = produce.PartitionProduceResponse(index=0, error_code=_NOT_LEADER)
    response = produce.ProduceResponse(responses=[produce.TopicProduceResponse(name="t", partition_responses=[part])])
    assert hint_to_producer(_call(9), response) is response
    assert (_leader(part), _nodes(response)) == ((-1, -1), [])


@pytest.mark.parametrize(
    ("version", "topic", "code", "told"),
    [
        (16, _ID, _NOT_LEADER, True),
        (16, "t", _FENCED, True),
        (15, _ID, _NOT_LEADER, False),
        (16, _ID, ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (16, _UNKNOWN, _NOT_LEADER, False),
    ],
)
def test_a_consumer_is_told_the_leader_at_the_wrong_one(version: int, topic: Any, code: ErrorCode, told: bool) -> None:
    data, response = fetch.PartitionData(partition_index=1, error_code=code), fetch.FetchResponse()
    hint_to_consumer(_call(version), response, topic, data)
    assert _leader(data) == ((2, 7) if told else (-1, -1))
    assert _nodes(response) == ([_NODE] if told else [])


def test_a_member_of_a_share_group_is_told_the_leader_at_the_wrong_one() -> None:
    codes = (_NOT_LEADER, _FENCED, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    parts = [share_fetch.PartitionData(partition_index=0, error_code=code) for code in codes]
    response = share_fetch.ShareFetchResponse(
        responses=[share_fetch.ShareFetchableTopicResponse(topic_id=_ID, partitions=parts)]
    )
    hint_to_share_member(_call(1), response, share_fetch.NodeEndpoint, [((_ID, 0), each) for each in parts])
    assert [each.current_leader.leader_id for each in parts][:2] == [2, 2]
    assert [each.current_leader.leader_epoch for each in parts][2:] == [0, 0]
    assert _nodes(response) == [_NODE]
