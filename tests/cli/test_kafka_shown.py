"""Kafka's tools before a cluster that no single node is: replicas that lag, leaders that are gone, groups with members.

The cluster is a table of answers; nothing is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from ottla.cli.kafka.groups import share_group
from ottla.cli.kafka.topics import topic as topics
from ottla.client import GroupType, TopicPartition
from ottla.client.admin.replica import Reassignment
from ottla.client.admin.result import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    GroupDescription,
    GroupListing,
    MemberDescription,
    PartitionDescription,
    Results,
    TopicDescription,
    TopicListing,
)
from ottla.client.admin.share_group import ShareOffset
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid, uuid_text
from tests.cli.kafka_tool import kafka
from tests.cli.tool import Said

NODES = {number: ClusterNode(number, f"b{number}", 9092, None) for number in range(1, 5)}
ID = Uuid(b"\1" * 16)
BY_ID_ALONE = (
    "Only topic id will be used when both --topic and --topic-id are specified and topicId is not Uuid.ZERO_UUID"
)
REPORTS = ["under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions", "at-min-isr-partitions"]


def run(module: Any, tool: str, client: Any, *words: str) -> Said:
    @contextmanager
    def opened(*_: object) -> Iterator[Any]:
        yield client

    with mock.patch.object(module, "admin", opened):
        return kafka(tool, "--bootstrap-server", "b:1", *words)


def partition(number: int, leader: int | None, replicas: str, isr: str, **more: Any) -> PartitionDescription:
    def nodes(ids: str) -> tuple[ClusterNode, ...]:
        return tuple(NODES[int(each)] for each in ids)

    led_by = None if leader is None else NODES[leader]
    return PartitionDescription(number, led_by, 0, nodes(replicas), nodes(isr), (), **more)


def setting(name: str, value: str, source: ConfigSource = ConfigSource.DEFAULT_CONFIG) -> ConfigEntry:
    return ConfigEntry(name, value, source, read_only=False, sensitive=False, type="INT")


def cluster(*partitions: PartitionDescription, own: str = "", moves: Any = None) -> mock.Mock:
    """The topic `t` with these partitions, where brokers 1 to 3 live; min.insync.replicas is 2."""
    entries = {each: setting(each, "5", ConfigSource.DYNAMIC_TOPIC_CONFIG) for each in own.split()}
    entries["min.insync.replicas"] = setting("min.insync.replicas", "2")

    def described(names: list[str]) -> Results[str, TopicDescription]:
        return Results({name: TopicDescription(name, ID, internal=False, partitions=partitions) for name in names}, {})

    def configs(resources: Any) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        return Results(dict.fromkeys(resources, entries), {})

    client = mock.Mock(describe_topics=described, describe_configs=configs)
    client.list_topics.side_effect = lambda internal: [
        TopicListing("t", ID, internal=False),
        *([TopicListing("__internal", Uuid(b"\2" * 16), internal=True)] if internal else []),
    ]
    client.describe_cluster.return_value = ClusterDescription("c", None, tuple(NODES[each] for each in (1, 2, 3)))
    if isinstance(moves, KafkaError):
        client.list_partition_reassignments.side_effect = moves
    else:
        client.list_partition_reassignments.return_value = moves or {}
    return client


def shown(client: mock.Mock, *words: str) -> list[str]:
    said = run(topics, "kafka-topics", client, "--describe", "--exclude-internal", *words)
    assert said.code == 0, said.out
    return said.out.splitlines()


@pytest.mark.parametrize(
    ("leader", "replicas", "isr", "reported"),
    [
        (1, "123", "123", ""),
        (1, "123", "12", "under-replicated-partitions at-min-isr-partitions"),
        (1, "123", "1", "under-replicated-partitions under-min-isr-partitions"),
        (1, "12", "12", "at-min-isr-partitions"),
        # Its leader is no broker that lives.
        (4, "123", "123", "unavailable-partitions"),
        (None, "123", "123", "unavailable-partitions under-min-isr-partitions"),
    ],
)
def test_each_report_shows_its_partitions_only(leader: int | None, replicas: str, isr: str, reported: str) -> None:
    client = cluster(partition(0, leader, replicas, isr))
    found = [report for report in REPORTS if shown(client, f"--{report}")]
    assert found == reported.split()
    both = shown(client, f"--{REPORTS[0]}", f"--{REPORTS[1]}")
    assert bool(both) == bool({*REPORTS[:2]} & {*reported.split()})


def test_a_move_under_way_is_shown_and_counts_for_no_lag() -> None:
    one = TopicPartition("t", 0)
    moving = cluster(partition(0, 1, "123", "12"), moves={one: Reassignment((1, 2, 3), (3,), (1,))})
    head, line = shown(moving)
    assert "\tReplicationFactor: 2\t" in head
    assert line.endswith(
        "Replicas: 1,2,3\tIsr: 1,2\tAdding Replicas: 3\tRemoving Replicas: 1\tElr: N/A\tLastKnownElr: N/A"
    )
    assert shown(moving, "--under-replicated-partitions") == []
    for code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
        still = cluster(partition(0, 1, "123", "12"), moves=KafkaError(code))
        assert "\tReplicationFactor: 3\t" in shown(still)[0]
    refused = cluster(partition(0, 1, "12", "12"), moves=KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert run(topics, "kafka-topics", refused, "--describe").code == 1


def test_a_partition_without_a_leader_says_so_and_what_may_lead_it() -> None:
    _, line = shown(cluster(partition(0, None, "12", "", elr=(NODES[1],), last_known_elr=(NODES[1], NODES[2]))))
    assert line == "\tTopic: t\tPartition: 0\tLeader: none\tReplicas: 1,2\tIsr: \tElr: 1\tLastKnownElr: 1,2"


def test_settings_of_their_own_are_shown_and_alone_on_request() -> None:
    both = partition(0, 1, "1", "1"), partition(1, 1, "1", "1")
    head, *lines = shown(cluster(*both, own="retention.ms delete.retention.ms"))
    assert head == (
        f"Topic: t\tTopicId: {uuid_text(ID)}\tPartitionCount: 2\tReplicationFactor: 1"
        "\tConfigs: delete.retention.ms=5,retention.ms=5"
    )
    assert len(lines) == 2
    assert shown(cluster(*both, own="retention.ms"), "--topics-with-overrides") == [
        head.replace("delete.retention.ms=5,", "")
    ]
    assert shown(cluster(*both), "--topics-with-overrides") == []


@pytest.mark.parametrize(
    ("words", "lines", "code"),
    [
        ("--topic t", ["Topic: t"], 0),
        (f"--topic-id {uuid_text(ID)}", ["Topic: t"], 0),
        (f"--topic-id {uuid_text(ID)} --topic u", ["Topic: t"], 0),
        (
            f"--topic-id {uuid_text(ID)} --topic u --if-exists",
            [BY_ID_ALONE, "Topic: t"],
            0,
        ),
        (f"--topic-id {uuid_text(Uuid(bytes(16)))} --topic t", ["Topic: t"], 0),
        (f"--topic-id {uuid_text(Uuid(b'3' * 16))} --if-exists", [], 0),
        (f"--topic-id {uuid_text(Uuid(b'3' * 16))}", ["Error while executing topic command : TopicId '"], 1),
        ("--topic-id x", ["Error while executing topic command : Input string `x` is no base64-encoded UUID"], 1),
        ("--topic u", ["Error while executing topic command : Topic 'u' does not exist as expected"], 1),
        ("--topic __internal --exclude-internal --if-exists", [], 0),
        ("--topic __internal", ["Topic: __internal"], 0),
    ],
)
def test_a_topic_is_described_by_its_id_or_its_name(words: str, lines: list[str], code: int) -> None:
    said = run(topics, "kafka-topics", cluster(partition(0, 1, "1", "1")), "--describe", *words.split())
    found = [line for line in said.out.splitlines() if not line.startswith("\t")]
    assert said.code == code
    assert len(found) == len(lines)
    assert all(line.startswith(start) for line, start in zip(found, lines, strict=True)), found


def test_partitions_are_added_with_the_replicas_of_the_new_ones_alone() -> None:
    client = cluster(partition(0, 1, "1", "1"))
    client.create_partitions.return_value = Results({"t": None}, {})
    words = ("--alter", "--topic", "t", "--partitions", "3")
    assert run(topics, "kafka-topics", client, *words).code == 0
    client.create_partitions.assert_called_with({"t": 3})
    assert run(topics, "kafka-topics", client, *words, "--replica-assignment", "1,2,3").code == 0
    client.create_partitions.assert_called_with({"t": 3}, assignments={"t": [[2], [3]]})


# ---- kafka-share-groups


def groups(**all_groups: str) -> mock.Mock:
    """Share groups in these states."""
    client = mock.Mock()
    client.list_groups.side_effect = lambda states, types: [
        GroupListing(group, GroupType.SHARE, state, "share")
        for group, state in all_groups.items()
        if types == [GroupType.SHARE] and (not states or state in states)
    ]
    client.describe_share_group.side_effect = lambda group: GroupDescription(
        group, GroupType.SHARE, all_groups[group], "simple", (), NODES[1], 7, 6, "share"
    )
    return client


def share(client: mock.Mock, *words: str) -> Said:
    return run(share_group, "kafka-share-groups", client, *words)


def test_share_groups_are_listed_by_their_states() -> None:
    client = groups(one="Stable", two="Empty")
    assert share(client, "--list").out.split() == ["one", "two"]
    rows = [line.split() for line in share(client, "--list", "--state").out.splitlines()]
    assert rows == [["GROUP", "STATE"], ["one", "Stable"], ["two", "Empty"]]
    rows = [line.split() for line in share(client, "--list", "--state", "EMPTY,dead").out.splitlines()]
    assert rows == [["GROUP", "STATE"], ["two", "Empty"]]
    wrong = share(client, "--list", "--state", "Empty,Steady")
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err.startswith("Invalid state list 'Empty,Steady'. Valid states are: Empty, Dead, Stable")


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            (),
            [
                "GROUP           COORDINATOR (ID)          STATE           #MEMBERS",
                "one             b1:9092  (1)              Stable          0",
            ],
        ),
        (
            ("--verbose",),
            [
                "GROUP           COORDINATOR (ID)          STATE           GROUP-EPOCH  ASSIGNMENT-EPOCH  #MEMBERS",
                "one             b1:9092  (1)              Stable          7            6                 0",
            ],
        ),
    ],
)
def test_the_state_of_a_share_group(words: tuple[str, ...], lines: list[str]) -> None:
    said = share(groups(one="Stable"), "--describe", "--group", "one", "--state", *words)
    assert said == (0, "".join(f"\n{line}" for line in lines) + "\n", "")


def test_a_share_group_without_members_or_gone_is_told() -> None:
    client = groups(empty="Empty", dead="Dead", other="Stable")
    said = share(client, "--describe", "--group", "empty", "--group", "dead", "--members")
    assert said.out == "\nError: Share group 'dead' does not exist.\n"
    assert said.err == "\nShare group 'empty' has no active members.\n"
    everything = share(client, "--describe", "--all-groups", "--state").out
    assert [line.split()[0] for line in everything.splitlines() if "b1:9092" in line] == ["dead", "empty", "other"]


def test_members_of_a_share_group_are_shown_in_order() -> None:
    client = groups(one="Stable")
    pairs = (TopicPartition("t", 0), TopicPartition("t", 2))
    members = tuple(
        MemberDescription(name, None, f"c-{name}", "/h", partitions, epoch=4)
        for name, partitions in (("m2", ()), ("m1", pairs))
    )
    client.describe_share_group.side_effect = lambda group: GroupDescription(
        group, GroupType.SHARE, "Stable", "simple", members, NODES[1], 7, 6, "share"
    )
    assert share(client, "--describe", "--group", "one", "--members").out == (
        "\nGROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS  ASSIGNMENT"
        "\none             m1              /h              c-m1            2            t:0,2"
        "\none             m2              /h              c-m2            0            \n"
    )
    verbose = share(client, "--describe", "--group", "one", "--members", "--verbose").out
    assert [line.split() for line in verbose.splitlines() if line][1] == [
        "one", "m1", "/h", "c-m1", "2", "4", "t:0,2"
    ]  # fmt: skip


def test_offsets_of_a_share_group_are_shown_where_it_has_begun() -> None:
    client = groups(one="Empty")
    client.list_share_group_offsets.return_value = Results(
        {
            TopicPartition("t", 1): ShareOffset(-1, 3, None),
            TopicPartition("t", 0): ShareOffset(0, 3, 9),
        },
        {},
    )
    assert share(client, "--describe", "--group", "one").out == (
        "\nGROUP           TOPIC           PARTITION  START-OFFSET  LAG"
        "\none             t               0          0             9"
        "\none             t               1          -             -\n"
    )
    verbose = share(client, "--describe", "--group", "one", "--offsets", "--verbose").out
    assert [line.split() for line in verbose.splitlines() if line][1:] == [
        ["one", "t", "0", "3", "0", "9"],
        ["one", "t", "1", "-", "-", "-"],
    ]
    client.list_share_group_offsets.return_value = Results({}, {})
    assert share(client, "--describe", "--group", "one").out == "\nShare group 'one' has no offset information.\n"


def test_only_empty_share_groups_are_deleted() -> None:
    client = groups(one="Empty", two="Stable", gone="Dead", bad="Empty")
    errors = {"bad": KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "away")}
    deleted: list[str] = []

    def delete(names: Iterator[str]) -> Results[str, None]:
        deleted.extend(names)
        return Results({}, errors if "bad" in deleted else {})

    client.delete_groups.side_effect = delete
    said = share(client, "--delete", "--all-groups").out
    assert deleted == ["one", "bad"]
    assert "* Group 'two' could not be deleted due to: " in said
    assert "Share group 'two' is not EMPTY." in said
    assert "Share group 'gone' group state is DEAD." in said
    assert "* Group 'bad' could not be deleted due to: " in said
    assert said.endswith("These share groups were deleted successfully: 'one'\n")
    deleted.clear()
    client.delete_groups.side_effect = None
    client.delete_groups.return_value = Results({"one": None}, {})
    said = share(client, "--delete", "--group", "one", "--group", "one").out
    assert said == "Deletion of requested share groups ('one') was successful.\n"


def test_a_share_group_with_members_is_not_reset() -> None:
    said = share(groups(one="Stable"), "--reset-offsets", "--group", "one", "--all-topics", "--to-latest", "--execute")
    assert (said.code, said.out) == (1, "")
    assert said.err == "Share group 'one' is not empty.\n"
