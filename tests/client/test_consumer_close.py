"""A consumer's close has one deadline for all that it waits for, as in Java's client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.client import AsyncConsumer, AsyncProducer, AsyncShareConsumer, TopicPartition
from ottla.client.connection.clock import now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.consumer.position import PartitionPosition
from ottla.client.decode import DeadLetters
from tests.client.hurried import hurried, passing

ONE = TopicPartition("t", 0)


async def _unanswered(*_: object) -> None:
    """No coordinator is found, for longer than any call may take."""
    await passing(1_000)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("call", ["close", "unsubscribe"])
@pytest.mark.parametrize(("request_timeout_ms", "within_ms"), [(8_000, 8_000), (50_000, 30_000)])
def test_a_consumer_without_a_cluster_is_closed_within_one_deadline(
    protocol: str, call: str, request_timeout_ms: int, within_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An automatic commit is under way; the last commit and leaving the group are still to come."""
    monkeypatch.setattr(Cluster, "coordinator", _unanswered)

    async def run() -> int:
        settings: Any = {"group_protocol": protocol, "request_timeout_ms": request_timeout_ms}
        consumer = AsyncConsumer("127.0.0.1:1", group_id="g", auto_commit_interval_ms=1, **settings)
        consumer.subscribe("t")
        membership: Any = consumer._group.membership  # type: ignore[union-attr]
        membership.member_id, membership.generation, membership.epoch = "me", 3, 3
        consumer._positions[ONE] = PartitionPosition(ONE)
        consumer._positions[ONE].seek(5)
        consumer._committed_at_ms -= 1_000
        consumer._auto_commit()
        before = now_ms()
        await getattr(consumer, call)()
        took_ms = now_ms() - before
        await consumer.close()
        assert consumer._committing is not None and consumer._committing.done()
        return took_ms

    assert within_ms <= hurried(run()) < within_ms + 300


@pytest.mark.parametrize("kind", [AsyncConsumer, AsyncShareConsumer])
def test_a_close_closes_the_producer_of_dead_letters_too(kind: Any) -> None:
    async def run() -> bool:
        consumer = kind("127.0.0.1:1", group_id="g", on_decode_error="dead-letter", dead_letter_topic="d")
        consumer._dead_letters = letters = DeadLetters(consumer.settings)
        letters._producer = producer = AsyncProducer("127.0.0.1:1")
        await consumer.close()
        return producer._closed

    assert hurried(run())


@pytest.mark.parametrize("answers", [True, False])
def test_a_close_waits_for_asynchronous_commits(answers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Java's client: their requests must not come behind the one to leave, or not at all."""
    steps: list[str] = []

    async def commit(*_: object, **__: object) -> None:
        await passing(5 if answers else 3_600)
        steps.append("committed")

    async def end(*_: object, **__: object) -> None:
        steps.append("left")

    async def run() -> int:
        consumer = AsyncConsumer("127.0.0.1:1", group_id="g", enable_auto_commit=False, request_timeout_ms=8_000)
        consumer.assign([ONE])
        monkeypatch.setattr(consumer._group, "commit", commit)
        monkeypatch.setattr(consumer._group, "end", end)
        # As a synchronous consumer does, which closes at once after it.
        commits = asyncio.ensure_future(consumer.commit_and_report({ONE: 5}, lambda _: steps.append("told")))
        before = now_ms()
        await asyncio.ensure_future(consumer.close())
        took_ms = now_ms() - before
        commits.cancel()
        return took_ms

    took_ms = 5_000 if answers else 8_000
    assert took_ms <= hurried(run()) < took_ms + 300
    assert steps == (["committed", "told", "left"] if answers else ["left"])
