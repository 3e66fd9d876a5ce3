"""What a client keeps of the brokers' answers: topics that come, go, fail and are forgotten; and when it asks again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest

from ottla.client.connection.clock import Backoff
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.connection.metadata import ClusterNode, Metadata, PartitionState
from ottla.kernel.client_error import NotReachable
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import NO_UUID, TopicPartition, Uuid
from ottla.settings.client.client import ClientSettings
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID, OTHER = Uuid(b"i" * 16), Uuid(b"o" * 16)


def topic(
    name: str | None, *leaders: int, topic_id: Uuid = ID, code: int = 0, epoch: int = 5, internal: bool = False
) -> MetadataResponseTopic:
    """Its partitions stand in the answer from the last to the first."""
    partitions = [
        MetadataResponsePartition(
            partition_index=index,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=[1, 2],
            isr_nodes=[2],
            offline_replicas=[1],
        )
        for index, leader in enumerate(leaders)
    ]
    return MetadataResponseTopic(
        name=name, topic_id=topic_id, error_code=code, is_internal=internal, partitions=partitions[::-1]
    )


def answer(*topics: MetadataResponseTopic, cluster_id: str | None = "c", racks: bool = False) -> MetadataResponse:
    brokers = [
        MetadataResponseBroker(node_id=number, host=f"b{number}", port=9092, rack=f"r{number}" if racks else None)
        for number in (1, 2)
    ]
    return MetadataResponse(brokers=brokers, topics=list(topics), cluster_id=cluster_id, controller_id=2)


def metadata(*topics: MetadataResponseTopic, racks: bool = False) -> Metadata:
    made = Metadata(max_age_ms=1000, max_idle_ms=300, now_ms=0)
    made.apply(answer(*topics, racks=racks), 0)
    return made


def test_an_answer_is_kept_field_by_field() -> None:
    made = metadata(topic("t", 1, 2, internal=True))
    assert made.nodes == {1: ClusterNode(1, "b1", 9092), 2: ClusterNode(2, "b2", 9092)}
    assert (made.cluster_id, made.controller_id, made.version, made.moves) == ("c", 2, 1, 1)
    known = made.topics["t"]
    assert (known.id, known.internal, [each.partition for each in known.partitions]) == (ID, True, [0, 1])
    assert known.partitions[1] == PartitionState(1, 2, 5, (1, 2), (2,), (1,))
    assert made.topic_names == {ID: "t"}
    made.apply(answer(cluster_id=None), 1)
    assert (made.cluster_id, made.version, list(made.topics)) == ("c", 2, ["t"])


@pytest.mark.parametrize(
    ("leaders", "epoch", "moved"),
    [((1, 2), 5, []), ((1, 1), 6, [0, 1]), ((1, 2), 6, [0, 1]), ((2, 2), 4, []), ((1, 2, 1), 5, [2])],
)
def test_what_moved_is_told(leaders: tuple[int, ...], epoch: int, moved: list[int]) -> None:
    made = metadata(topic("t", 1, 2))
    found = made.apply(answer(topic("t", *leaders, epoch=epoch)), 1)
    assert sorted(found) == [TopicPartition("t", index) for index in moved]
    assert made.moves == 1 + bool(moved)


def test_epochs_that_cannot_be_relied_on_are_not_kept() -> None:
    made = Metadata(max_age_ms=1000, max_idle_ms=300, now_ms=0)
    made.apply(answer(topic("t", 1)), 0, epochs=False)
    assert made.topics["t"].partitions[0].leader_epoch == -1
    assert not made.epoch_seen("t", 0, 9, 0), "with no epoch known, no epoch is newer"


def test_a_partition_has_a_leader_when_the_leader_is_known() -> None:
    made = metadata(topic("t", 1, -1, 7))
    assert [getattr(made.leader("t", index), "leader", None) for index in range(4)] == [1, None, None, None]
    assert made.leader("u", 0) is None
    made.add_nodes([ClusterNode(7, "b7", 1)])
    assert made.leader("t", 2) == made.topics["t"].partitions[2]


def test_a_topic_is_found_by_its_id_until_another_takes_its_name() -> None:
    made = metadata(topic("t", 1))
    made.apply(answer(topic(None, 2, epoch=6), topic(None, 1, topic_id=OTHER)), 1)
    assert {name: known.partitions[0].leader for name, known in made.topics.items()} == {"t": 2}
    made.apply(answer(topic("t", 1, topic_id=OTHER, epoch=0)), 2)
    assert made.topic_names == {OTHER: "t"}
    # A broker without topic ids says nothing of which topic it is.
    made.apply(answer(topic("t", 2, topic_id=NO_UUID, epoch=1)), 3)
    assert (made.topics["t"].partitions[0].leader, made.topic_names) == (2, {OTHER: "t"})


@pytest.mark.parametrize(
    ("code", "error", "kept"),
    [
        (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE, True),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID, False),
        (9999, ErrorCode.UNKNOWN_SERVER_ERROR, True),
    ],
)
def test_a_topic_that_fails_is_kept_unless_it_is_gone(code: int, error: ErrorCode, kept: bool) -> None:
    made = metadata(topic("t", 1))
    made.apply(answer(topic("t", code=code)), 1)
    assert made.errors == {"t": error}
    assert ("t" in made.topics, ID in made.topic_names) == (kept, kept)
    made.apply(answer(topic("t", 1)), 2)
    assert (made.errors, "t" in made.topics) == ({}, True)


def test_a_topic_that_a_list_of_all_lacks_is_gone() -> None:
    made = metadata(topic("t", 1), topic("u", 1, topic_id=OTHER))
    made.apply(answer(topic("u", 1, topic_id=OTHER)), 1)
    assert list(made.topics) == ["t", "u"], "it was not asked for"
    made.want_all(True, 2)
    assert (made.update_due_ms(), made.topics_to_ask(2), made.has_all_topics) == (2, None, False)
    made.apply(answer(topic("u", 1, topic_id=OTHER)), 3)
    assert (list(made.topics), made.has_all_topics) == (["t", "u"], False), "others were asked for before"
    made.apply(answer(topic("u", 1, topic_id=OTHER)), 4, complete=True)
    assert (list(made.topics), made.has_all_topics) == (["u"], True)
    made.want_all(True, 5)
    assert made.update_due_ms() == 1004, "they are known already"
    made.want_all(False, 5)
    assert not made.has_all_topics


def test_a_topic_is_forgotten_when_it_was_not_used_for_long() -> None:
    made = metadata(topic("t", 1))
    assert not made.want(["t"], 100)
    assert made.want(["t", "new"], 200)
    assert made.want(["new", "t"], 200), "one of them is unknown, whichever comes last"
    assert made.topics_to_ask(500) == ["t", "new"]
    made.want(["new"], 400)
    assert made.topics_to_ask(501) == ["new"]
    assert "t" not in made.topics


def test_the_brokers_are_asked_when_an_answer_is_old_or_something_failed() -> None:
    made = metadata()
    assert made.update_due_ms() == 1000
    made.request_update(400)
    made.request_update(700)
    assert made.update_due_ms() == 400, "a later failure puts nothing off"
    made.apply(answer(), 450)
    assert made.update_due_ms() == 1450


def test_a_newer_epoch_than_that_of_the_leader_hides_the_leader() -> None:
    made = metadata(topic("t", 1, 2))
    assert not made.epoch_seen("t", 0, 5, 10)
    assert not made.epoch_seen("t", 2, 9, 10)
    assert not made.epoch_seen("u", 0, 9, 10)
    assert made.update_due_ms() == 1000
    assert made.epoch_seen("t", 0, 6, 10)
    assert (made.leader("t", 0), made.update_due_ms(), made.moves) == (None, 10, 2)
    assert made.topics["t"].partitions[0] == PartitionState(0, -1, 6, (1, 2), (2,), (1,))
    assert made.leader("t", 1) is not None


def test_racks_are_those_of_the_replicas() -> None:
    assert metadata(topic("t", 1)).racks(["t"]) == {}
    made = metadata(topic("t", 1, 2), racks=True)
    assert made.racks(["t", "u"]) == {TopicPartition("t", index): frozenset({"r1", "r2"}) for index in (0, 1)}
    made.nodes[2] = ClusterNode(2, "b2", 9092)
    assert made.racks(["t"])[TopicPartition("t", 0)] == frozenset({"r1"})


def test_a_backoff_doubles_up_to_its_longest_with_some_jitter() -> None:
    backoff = Backoff(100, 500)
    pauses = [backoff.next_ms() for _ in range(6)]
    assert all(
        0.8 * base - 1 <= pause <= 1.2 * base
        for pause, base in zip(pauses, (100, 200, 400, 500, 500, 500), strict=True)
    )
    assert backoff.attempts == 6
    backoff.attempts = 1000
    assert backoff.next_ms() <= 600


def test_only_topics_that_are_not_known_are_asked_for_and_what_no_broker_knows_is_missing() -> None:
    class Asked(Cluster):
        async def _ask(self, topics: list[str] | None, *, create: bool | None = None) -> MetadataResponse:
            assert (topics, create) == (["new", "gone", "no/name", "secret"], False)
            self.metadata.errors.update(
                {
                    "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
                    "secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                }
            )
            return MetadataResponse()

    async def missing() -> list[str]:
        cluster = Asked(ClientSettings.read("127.0.0.1:1", {}))
        cluster.metadata.topics["known"] = cast(Any, None)
        return await cluster.missing(["new", "known", "gone", "no/name", "secret"])

    assert asyncio.run(missing()) == ["gone", "no/name"]


class _Far(Cluster):
    """A cluster of one known broker, which answers while `near`; the time is what the test says."""

    near = True

    def __init__(self, **more: object) -> None:
        super().__init__(ClientSettings.read("127.0.0.1:1", {"metadata_recovery_rebootstrap_trigger_ms": 1000, **more}))
        self.metadata.nodes[7] = ClusterNode(7, "h", 1)

    async def any(self) -> BrokerConnection:
        if not self.near:
            raise NotReachable("no broker can be reached")
        return cast(BrokerConnection, self)

    def version_of(self, *_: object) -> int:
        return 12

    async def call(self, *_: object, **__: object) -> MetadataResponse:
        return MetadataResponse(brokers=[MetadataResponseBroker(node_id=7, host="h", port=1)])


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
def test_a_client_starts_again_when_its_brokers_have_told_it_nothing_for_so_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, strategy: str
) -> None:
    """Counted from the first question without an answer, however old the metadata may become (KIP-1102)."""
    clock = [0]
    monkeypatch.setattr("ottla.client.connection.cluster.now_ms", lambda: clock[0])

    async def run() -> None:
        cluster = _Far(metadata_recovery_strategy=strategy)

        async def known_after(now: int) -> bool:
            clock[0] = now
            with suppress(NotReachable):
                await cluster.update(["t"])
            return bool(cluster.metadata.nodes)

        assert await known_after(1)
        # Nothing was asked for an hour: no reason to start again.
        assert await known_after(3_600_000)
        cluster.near = False
        assert await known_after(9_000_000) and await known_after(9_001_000)
        assert await known_after(9_001_001) is (strategy == "none")
        cluster.near = True
        assert await known_after(9_002_000)
        cluster.near = False
        assert await known_after(9_100_000) and await known_after(9_101_000)

    asyncio.run(run())
    told = [each.getMessage() for each in caplog.records if "starting again" in each.getMessage()]
    assert len(told) == (strategy == "rebootstrap")


def test_a_client_that_does_not_start_again_uses_the_answer_of_a_cluster_that_asks_for_it() -> None:
    class Sends(_Far):
        async def call(self, *_: object, **__: object) -> MetadataResponse:
            broker = MetadataResponseBroker(node_id=8, host="h", port=2)
            return MetadataResponse(brokers=[broker], error_code=int(ErrorCode.REBOOTSTRAP_REQUIRED))

    async def run() -> None:
        cluster = Sends(metadata_recovery_strategy="none")
        await cluster.update(["t"])
        assert set(cluster.metadata.nodes) == {8}

    asyncio.run(run())


def test_an_answer_of_a_broker_that_does_not_know_its_cluster_yet_is_ignored() -> None:
    """A broker that starts: its list of topics would deny those that exist. As in Java's client, it is asked again."""

    class Starting(_Far):
        starting = False

        async def call(self, *_: object, **__: object) -> MetadataResponse:
            if not self.starting:
                topic = MetadataResponseTopic(name="t", topic_id=Uuid(b"t" * 16))
                broker = MetadataResponseBroker(node_id=7, host="h", port=1)
                return MetadataResponse(brokers=[broker], topics=[topic])
            gone = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return MetadataResponse(topics=[MetadataResponseTopic(name="t", error_code=gone)])

        @property
        def host(self) -> str:
            return "h"

        port = 1

    async def run() -> None:
        cluster = Starting()
        await cluster.update(["t"])
        cluster.starting = True
        version = cluster.metadata.version
        with pytest.raises(NotReachable, match="h:1 does not know the brokers of its cluster yet"):
            await cluster.update(["t"])
        assert set(cluster.metadata.topics) == {"t"} and set(cluster.metadata.nodes) == {7}
        assert cluster.metadata.version == version and not cluster.metadata.errors

    asyncio.run(run())
