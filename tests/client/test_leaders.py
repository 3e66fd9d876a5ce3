"""Which node the admin client asks about a partition, and what it says of those that no node leads."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.admin.call import Calls
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition

_LED, _LED_TOO, _LEADERLESS, _BEHIND, _GONE = (
    TopicPartition(topic, index) for topic, index in (("t", 0), ("t", 1), ("t", 2), ("t", 3), ("gone", 0))
)


def _leaders(refusal: KafkaError | None, wanted: list[TopicPartition]) -> tuple[dict[int, Any], dict[Any, KafkaError]]:
    """`t` has three partitions, of which node 7 leads two."""

    async def known(topics: set[str], timeout_ms: int) -> None:
        assert topics == {each.topic for each in wanted} and timeout_ms == 500
        if refusal is not None:
            raise refusal

    metadata = SimpleNamespace(
        topics={"t": SimpleNamespace(partitions=[0, 1, 2])},
        has=lambda partition: partition.topic == "t" and partition.partition < 3,
        leader=lambda topic, index: SimpleNamespace(leader=7) if topic == "t" and index < 2 else None,
    )
    updates: list[None] = []

    async def update() -> None:
        updates.append(None)

    calls: Any = SimpleNamespace(
        _settings=SimpleNamespace(default_api_timeout_ms=500),
        _cluster=SimpleNamespace(known=known, metadata=metadata, update=update),
    )
    leaders = asyncio.run(Calls._leaders(calls, wanted))
    assert len(updates) == (_BEHIND in wanted), "a partition that is not there may be new"
    return leaders


def test_each_partition_has_its_leader_or_why_it_has_none() -> None:
    led, errors = _leaders(None, [_LED, _LEADERLESS, _LED_TOO, _BEHIND])
    assert led == {7: [_LED, _LED_TOO]}
    assert {each: (why.code, str(why.message)) for each, why in errors.items()} == {
        _LEADERLESS: (ErrorCode.LEADER_NOT_AVAILABLE, "partition t-2 has no leader now"),
        _BEHIND: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t has no partition 3 (expected 0 to 2)"),
    }


def test_a_topic_that_is_not_there_takes_nothing_from_the_others() -> None:
    led, errors = _leaders(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), [_GONE, _LED])
    assert led == {7: [_LED]}
    assert errors.keys() == {_GONE} and "there is no topic gone" in str(errors[_GONE].message)


def test_any_other_refusal_is_the_callers() -> None:
    with pytest.raises(KafkaError) as raised:
        _leaders(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), [_LED])
    assert raised.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
