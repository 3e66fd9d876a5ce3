"""Topics, settings and groups through every client's admin side, seen by all other clients alike."""

import pytest

from tests.interop.peer import Peer, PeerError
from tests.interop.scene import each_peer, plain
from tests.interop.test_group import Member, await_true

TOPIC_ALREADY_EXISTS = 36
INVALID_TOPIC_EXCEPTION = 17
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_CONFIG = 40
INVALID_PARTITIONS = 37


@each_peer(lambda kind: {"create", "describe", "delete", "topics"} <= kind.admin)
def test_a_topic_is_created_described_and_deleted(peer: Peer, name: str) -> None:
    peer.call("create", topic=name, partitions=3, configs={"retention.ms": "123456"})
    assert name in peer.ask("topics")["topics"]
    described = sorted(peer.ask("describe", topic=name)["partitions"], key=lambda one: int(one["p"]))
    assert described == [{"p": partition, "leader": 1, "replicas": [1]} for partition in range(3)]
    peer.call("delete", topic=name)
    assert name not in peer.ask("topics")["topics"]


@each_peer(lambda kind: {"create", "configs"} <= kind.admin)
def test_the_settings_a_topic_was_created_with_are_told(peer: Peer, name: str) -> None:
    given = {"retention.ms": "123456", "cleanup.policy": "compact", "segment.bytes": "1048576"}
    peer.call("create", topic=name, partitions=1, configs=given)
    told = peer.ask("configs", topic=name)["configs"]
    assert given.items() <= told.items()
    # Every setting is told, with Kafka's default where nothing was given.
    assert told["min.insync.replicas"] == "1"
    assert told["compression.type"] == "producer"
    assert told["max.message.bytes"] == "1048588"


@each_peer(lambda kind: {"create", "configs", "alter"} <= kind.admin)
def test_a_topic_setting_is_altered(peer: Peer, name: str) -> None:
    peer.call("create", topic=name, partitions=1, configs={"segment.bytes": "1048576"})
    peer.call("alter", topic=name, configs={"retention.ms": "654321"})
    told = peer.ask("configs", topic=name)["configs"]
    assert (told["retention.ms"], told["segment.bytes"]) == ("654321", "1048576")


@each_peer(lambda kind: {"create", "configs", "replace"} <= kind.admin)
def test_the_settings_of_a_topic_are_replaced(peer: Peer, name: str) -> None:
    peer.call("create", topic=name, partitions=1, configs={"segment.bytes": "1048576"})
    peer.call("replace", topic=name, configs={"retention.ms": "654321"})
    told = peer.ask("configs", topic=name)["configs"]
    assert (told["retention.ms"], told["segment.bytes"]) == ("654321", "1073741824")


@each_peer(lambda kind: {"create", "alter"} <= kind.admin)
def test_a_bad_setting_is_refused_by_its_code(peer: Peer, name: str) -> None:
    peer.call("create", topic=name, partitions=1)
    with pytest.raises(PeerError) as refused:
        peer.call("alter", topic=name, configs={"retention.ms": "for ever"})
    assert refused.value.code == INVALID_CONFIG


@each_peer(lambda kind: "create" in kind.admin)
def test_a_topic_that_is_there_is_refused_by_its_code(peer: Peer, name: str) -> None:
    peer.call("create", topic=name, partitions=1)
    with pytest.raises(PeerError) as refused:
        peer.call("create", topic=name, partitions=1)
    assert refused.value.code == TOPIC_ALREADY_EXISTS


@each_peer(lambda kind: "create" in kind.admin and kind.checks_names_at_server)
def test_a_name_that_no_topic_may_have_is_refused_by_its_code(peer: Peer) -> None:
    with pytest.raises(PeerError) as refused:
        peer.call("create", topic="no spaces/please", partitions=1)
    assert refused.value.code == INVALID_TOPIC_EXCEPTION


@each_peer(lambda kind: "delete" in kind.admin)
def test_deleting_a_topic_that_is_not_there_is_refused_by_its_code(peer: Peer, name: str) -> None:
    with pytest.raises(PeerError) as refused:
        peer.call("delete", topic=name)
    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION


@each_peer(lambda kind: {"create", "add_partitions", "describe"} <= kind.admin)
def test_partitions_are_added_and_take_records(peer: Peer, helper: Peer, name: str) -> None:
    peer.call("create", topic=name, partitions=1)
    peer.call("add_partitions", topic=name, partitions=3)
    for partition in range(3):
        helper.await_partition(name, partition)
    assert len(peer.ask("describe", topic=name)["partitions"]) == 3
    records = plain(9, partitions=3)
    peer.produce(name, records)
    assert len(peer.consume(name, [0, 1, 2], 9)) == 9


@each_peer(lambda kind: {"create", "add_partitions"} <= kind.admin)
def test_fewer_partitions_are_refused_by_their_code(peer: Peer, name: str) -> None:
    peer.call("create", topic=name, partitions=3)
    with pytest.raises(PeerError) as refused:
        peer.call("add_partitions", topic=name, partitions=2)
    assert refused.value.code == INVALID_PARTITIONS


@each_peer(lambda kind: {"groups", "committed"} <= kind.admin)
def test_a_group_is_listed_with_what_it_committed(peer: Peer, helper: Peer, name: str) -> None:
    helper.create(name, 2)
    helper.produce(name, plain(30, partitions=2))
    member = Member(peer, name, [name], "classic")
    await_true([member], lambda: len(member.records) == 30, "30 records")
    member.leave()
    assert name in peer.ask("groups")["groups"]
    assert peer.ask("committed", group=name, topic=name) == {"offsets": {"0": 15, "1": 15}}


@each_peer(lambda kind: "delete_records" in kind.admin)
def test_records_are_deleted_up_to_an_offset(peer: Peer, helper: Peer, name: str) -> None:
    peer.call("create", topic=name, partitions=1)
    helper.produce(name, plain(20))
    assert peer.ask("delete_records", topic=name, partition=0, offset=12) == {"low_watermark": 12}
    assert peer.ask("offsets", topic=name, partition=0, at="earliest") == {"offset": 12}
    assert sorted(peer.consume(name, [0], 8, start={0: 12})) == [(0, offset) for offset in range(12, 20)]


@each_peer(lambda kind: {"delete_group", "groups"} <= kind.admin)
def test_an_empty_group_is_deleted(peer: Peer, helper: Peer, name: str) -> None:
    helper.create(name, 1)
    helper.produce(name, plain(5))
    member = Member(peer, name, [name], "classic")
    await_true([member], lambda: len(member.records) == 5, "5 records")
    member.leave()
    peer.call("delete_group", group=name)
    assert name not in peer.ask("groups")["groups"]
