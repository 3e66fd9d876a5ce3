"""What the tools decide, asked for from Python: against one node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla
from ottla.client import (
    Admin,
    ConfigResource,
    ErrorCode,
    OffsetSpec,
    Producer,
    ResourceType,
    ScramMechanism,
    TopicPartition,
)
from ottla.kernel.error import OttlaError
from ottla.operations.configs import alter, own, own_of_topic
from ottla.operations.elections import elect
from ottla.operations.features import levels_of, set_levels
from ottla.operations.group_offsets import check_empty, plan_forgetting, plan_reset
from ottla.operations.hanging import SearchFailed, find_hanging
from ottla.operations.offsets import plan_trim
from ottla.operations.passwords import name_of, plan_deletion, set_password
from ottla.operations.quorum_view import members
from ottla.operations.reassignment import begin_directory_move, begin_move, cancel, under_way
from ottla.operations.throttle import unthrottle_all
from ottla.operations.topics.copy import prepare_target
from ottla.operations.topics.view import summaries, view
from ottla.operations.transaction_view import transactions

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
TOPIC = ConfigResource(ResourceType.TOPIC, "a")


@pytest.fixture
def admin(node: ottla.Node) -> Iterator[Admin]:
    """A topic of two partitions with ten records in the first; the group `g` has read seven of them."""
    with Admin(node.bootstrap_servers) as admin:
        admin.create_topic("a", 2)
        with Producer(node.bootstrap_servers) as producer:
            for _ in range(10):
                producer.send("a", b"value", partition=0)
        admin.alter_group_offsets("g", {A0: 7}).check()
        yield admin
        admin.delete_group("g")
        admin.delete_topic("a")


def test_a_reset_changes_nothing_before_it_is_committed(admin: Admin) -> None:
    reset = plan_reset(admin, "g", OffsetSpec.EARLIEST, topics=["a"])
    assert (reset.before, reset.goals, reset.moved) == ({A0: 7}, {A0: 0, A1: 0}, 2)
    assert admin.list_group_offsets("g").keys() == {A0}
    check_empty(admin, "g")
    reset.commit(admin)
    assert {each: one.offset for each, one in admin.list_group_offsets("g").items()} == {A0: 0, A1: 0}


def test_a_reset_by_records_stays_within_the_partition(admin: Admin) -> None:
    assert plan_reset(admin, "g", shift=-2).goals == {A0: 5}
    assert plan_reset(admin, "g", shift=99).goals == {A0: 10}
    with pytest.raises(OttlaError, match="no committed offset for a-1"):
        plan_reset(admin, "g", shift=1, topics=["a"])
    with pytest.raises(OttlaError, match="g has no partition 7"):
        plan_reset(admin, "g", 0, only=[7])
    with pytest.raises(OttlaError, match="other has no committed offsets"):
        plan_reset(admin, "other", 0)


def test_a_group_forgets_a_topic(admin: Admin) -> None:
    with pytest.raises(OttlaError, match="g has no committed offset for b"):
        plan_forgetting(admin, "g", ["a", "b"])
    plan_forgetting(admin, "g", ["a"]).commit(admin)
    assert admin.list_group_offsets("g") == {}


def test_settings_are_changed_and_told_from_defaults(admin: Admin) -> None:
    alter(admin, TOPIC, {"retention.ms": 5, "segment.bytes": 2_000_000})
    alter(admin, TOPIC, {"retention.ms": None})
    assert own_of_topic(admin, "a") == {"segment.bytes": "2000000"}
    cluster = ConfigResource(ResourceType.BROKER, "")
    alter(admin, cluster, {"log.cleaner.threads": 2})
    assert own(admin.describe_config(cluster), cluster)["log.cleaner.threads"].value == "2"
    alter(admin, cluster, {"log.cleaner.threads": None})


def test_settings_of_what_is_not_there_are_refused_at_once(admin: Admin) -> None:
    with pytest.raises(OttlaError, match=r"there is no topic aa; did you mean a\?"):
        alter(admin, ConfigResource(ResourceType.TOPIC, "aa"), {"retention.ms": 5})
    with pytest.raises(OttlaError, match="there is no broker 7 now; the brokers are 1"):
        alter(admin, ConfigResource(ResourceType.BROKER, "7"), {"log.cleaner.threads": 2})
    with pytest.raises(OttlaError, match=r"a topic has no setting retention.mss; did you mean retention.ms\?"):
        alter(admin, TOPIC, {"retention.mss": None})


def test_an_election_tells_what_needed_none_from_what_failed(admin: Admin) -> None:
    missing = TopicPartition("a", 7)
    found = elect(admin, [A0, missing])
    assert (found.elected, found.unchanged) == ([], [A0])
    assert [(key, error.code) for key, error in found.failed.items()] == [
        (missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ]


def test_records_before_a_place_go(admin: Admin) -> None:
    trim = plan_trim(admin, "a", -4)
    assert (trim.goals, trim.records) == ({A0: 6, A1: 0}, 6)
    admin.delete_records(trim.goals).check()
    assert plan_trim(admin, "a", OffsetSpec.LATEST, [0]).records == 4
    with pytest.raises(OttlaError, match=r"a has no partition 7 \(expected 0 to 1\)"):
        plan_trim(admin, "a", 0, [7])


def test_a_topic_is_seen_with_its_records_and_settings(admin: Admin) -> None:
    alter(admin, TOPIC, {"retention.ms": 5})
    [line] = summaries(admin, ["a"])
    assert (line.topic, line.partitions, line.replicas, line.records) == ("a", 2, 1, 10)
    assert line.bytes > 0
    about = view(admin, "a")
    assert [(each.leader, each.start_offset, each.end_offset) for each in about.partitions] == [(1, 0, 10), (1, 0, 0)]
    assert about.configs == {"retention.ms": "5"}


def test_moves_are_checked_before_they_begin(admin: Admin) -> None:
    assert begin_move(admin, "a", [1], [1]) == [A1]
    assert under_way(admin) == []
    assert cancel(admin, "a") == []
    assert unthrottle_all(admin) == []
    with pytest.raises(OttlaError, match="there is no node 7 now; the nodes are 1"):
        begin_move(admin, "a", [1, 7])
    with pytest.raises(OttlaError, match="there is no node 7 now; the nodes are 1"):
        begin_directory_move(admin, "a", "/nowhere", 7)
    with pytest.raises(OttlaError, match=r"node 1 has no log directory /nowhere \(expected /"):
        begin_directory_move(admin, "a", "/nowhere", 1)


def test_a_target_with_records_takes_a_copy_only_when_it_may_be_appended_to(admin: Admin) -> None:
    with pytest.raises(OttlaError, match="there is no topic b; --create creates it like the source"):
        prepare_target(admin, "b", 3)
    assert prepare_target(admin, "b", 3, {"retention.ms": "5"}) == 3
    assert own_of_topic(admin, "b") == {"retention.ms": "5"}
    admin.delete_topic("b")
    with pytest.raises(OttlaError, match="a already has 10 records"):
        prepare_target(admin, "a", 3)
    assert prepare_target(admin, "a", 3, append=True) == 2


def test_a_search_for_hanging_transactions_says_what_it_could_not_do(node: ottla.Node, admin: Admin) -> None:
    settings: dict[str, object] = {"bootstrap.servers": node.bootstrap_servers, "transactional.id": "t"}
    with Producer(settings) as producer, producer.transaction():
        producer.send("a", b"value", partition=1).result()
        # The coordinator knows it: it is open, and does not hang.
        assert find_hanging(admin, "a", longer_than_ms=-60_000) == []
    with pytest.raises(SearchFailed, match="cannot describe 1 topics") as failed:
        find_hanging(admin, "b", longer_than_ms=0)
    assert failed.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_open_transaction_is_seen_with_its_age(node: ottla.Node, admin: Admin) -> None:
    settings: dict[str, object] = {"bootstrap.servers": node.bootstrap_servers, "transactional.id": "seen"}
    with Producer(settings) as producer:
        with producer.transaction():
            producer.send("a", b"value", partition=1).result()
            [during] = [each for each in transactions(admin) if each.id == "seen"]
        [after] = [each for each in transactions(admin) if each.id == "seen"]
    assert (during.state, during.partitions, during.coordinator) == ("Ongoing", 1, 1)
    assert during.open_ms is not None
    assert after.open_ms is None
    assert after.producer == during.producer


def test_a_password_is_set_for_every_mechanism_and_taken_away(admin: Admin) -> None:
    first, second = ScramMechanism
    assert set_password(admin, "alice", "secret", [second], iterations=5_000) == [second]
    assert admin.describe_scram_credentials()["alice"] == {second: 5_000}
    with pytest.raises(OttlaError, match="alice has no password for SCRAM-SHA-256"):
        plan_deletion(admin, "alice", [second, first])
    assert set_password(admin, "alice", "another") == [first, second]
    deletion = plan_deletion(admin, "alice")
    assert [name_of(each) for each in deletion.mechanisms] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert admin.describe_scram_credentials()["alice"] == {first: 4_096, second: 4_096}
    plan_deletion(admin, "alice", [first]).commit(admin)
    assert admin.describe_scram_credentials()["alice"] == {second: 4_096}
    plan_deletion(admin, "alice").commit(admin)
    assert "alice" not in admin.describe_scram_credentials()
    with pytest.raises(OttlaError, match="alice has no password; "):
        plan_deletion(admin, "alice")


def test_levels_of_features_go_down_only_when_they_may(admin: Admin) -> None:
    def level() -> int | None:
        return admin.describe_features()["share.version"].finalized

    assert levels_of("4.0")["share.version"] == 0
    assert levels_of()["metadata.version"] == levels_of("4.3")["metadata.version"]
    with pytest.raises(OttlaError, match=r"Unknown metadata.version '0.1'"):
        levels_of("0.1")
    before = level()
    assert before == 1
    with pytest.raises(OttlaError, match=r"share\.version would go down"):
        set_levels(admin, {"share.version": 0})
    set_levels(admin, {"share.version": 0}, downgrade=True, dry_run=True)
    assert level() == before
    set_levels(admin, {"share.version": 0}, downgrade=True)
    assert level() in (0, None)
    set_levels(admin, {"share.version": 1})
    assert level() == before


def test_the_quorum_of_one_node_is_its_leader(admin: Admin) -> None:
    found = admin.describe_quorum()
    [leader] = members(found)
    assert (leader.node, leader.role, leader.lag) == (found.leader_id, "leader", 0)
    assert leader.end_offset >= found.high_watermark
