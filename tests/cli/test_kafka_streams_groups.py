"""kafka-streams-groups before groups that run: what it shows of them, and what is deleted with them.

The cluster is a table of answers; nothing is sent. `tests/cli/console/streams.txt` has what one node can show.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from ottla.cli.kafka.groups import streams_group
from ottla.client import CommittedOffset, TopicPartition
from ottla.client.admin.result import GroupListing, GroupType, ListedOffset, OffsetSpec, Results, TopicDescription
from ottla.client.admin.streams_group import (
    StreamsGroupDescription,
    StreamsMemberDescription,
    StreamsTasks,
    SubtopologyDescription,
)
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.error import ErrorCode, KafkaError
from tests.cli.kafka_tool import kafka
from tests.cli.test_kafka_shown import ID, partition
from tests.cli.tool import Said

NONE = StreamsTasks((), (), ())
PARTS = (
    SubtopologyDescription("0", ("in",), ("app-by-key-repartition",), (), ()),
    SubtopologyDescription("1", (), (), ("app-count-changelog", "in"), ("app-by-key-repartition",)),
)
IN, BY_KEY, BY_KEY_1 = TopicPartition("in", 0), *(TopicPartition("app-by-key-repartition", n) for n in (0, 1))


def member(name: str, assignment: StreamsTasks, target: StreamsTasks = NONE) -> StreamsMemberDescription:
    return StreamsMemberDescription(name, 4, None, None, f"c-{name}", "/h", f"p-{name}", 1, assignment, target)


MEMBERS = (
    member("m2", NONE, StreamsTasks((), (("1", 0),), ())),
    member("m1", StreamsTasks((("0", 0), ("1", 0), ("1", 1)), (), ())),
)


def cluster(state: str = "Stable", *members: StreamsMemberDescription, parts: Any = PARTS) -> mock.Mock:
    """The group `app`, and the offsets of its topics: each begins at 2 and ends at 9."""
    client = mock.Mock()
    client.list_groups.return_value = [GroupListing("app", GroupType.STREAMS, state, "streams")]
    node = ClusterNode(1, "b1", 9092, None)
    client.describe_streams_group.side_effect = lambda group: StreamsGroupDescription(
        group, state, 7, 6, 1, parts, members, node
    )
    client.list_offsets.side_effect = lambda specs: Results(
        {tp: ListedOffset(2 if spec is OffsetSpec.EARLIEST else 9, -1, 0) for tp, spec in specs.items()}, {}
    )
    client.list_group_offsets.return_value = {IN: CommittedOffset(5, leader_epoch=3), BY_KEY: CommittedOffset(9)}
    client.delete_groups.return_value = Results({"app": None}, {})
    client.delete_topics.return_value = Results({}, {})
    return client


def run(client: mock.Mock, *words: str) -> Said:
    @contextmanager
    def opened(*_: object) -> Iterator[Any]:
        yield client

    with mock.patch.object(streams_group, "admin", opened):
        return kafka("kafka-streams-groups", "--bootstrap-server", "b:1", *words)


def lines(client: mock.Mock, *words: str) -> list[str]:
    said = run(client, "--describe", "--group", "app", *words)
    assert (said.code, said.err) == (0, "")
    return [line for line in said.out.splitlines() if line]


def test_the_state_of_a_group_is_a_table() -> None:
    client = cluster("Stable", *MEMBERS)
    assert lines(client, "--state") == [
        "GROUP           COORDINATOR (ID)          STATE                     #MEMBERS",
        "app             b1:9092 (1)               Stable                    2",
    ]
    heads, cells = lines(client, "--state", "--verbose")
    more = "GROUP-EPOCH     TARGET-ASSIGNMENT-EPOCH   #MEMBERS"
    assert heads == f"GROUP           COORDINATOR (ID)          STATE                     {more}"
    more = "7               6                         2"
    assert cells == f"app             b1:9092 (1)               Stable                    {more}"
    assert lines(cluster("Empty"), "--state")[0] == "Error: Streams group 'app' has no active members."
    assert lines(cluster("Dead"), "--state")[0] == "Error: Streams group 'app' does not exist."


def test_members_are_shown_in_order_with_their_tasks() -> None:
    client = cluster("Stable", *MEMBERS)
    assert [line.rstrip() for line in lines(client, "--members")] == [
        "GROUP           MEMBER          PROCESS         CLIENT-ID       ASSIGNMENTS",
        "app             m1              p-m1            c-m1            ACTIVE: 0:[0]; 1:[0,1];",
        "app             m2              p-m2            c-m2",
    ]
    rows = [line.split() for line in lines(client, "--members", "--verbose")]
    assert rows[1][:9] == ["app", "6", "1", "m1", "streams", "4", "p-m1", "c-m1", "ACTIVE:"]
    assert rows[2][8:] == ["TARGET-STANDBY:", "1:[0];"]
    assert lines(cluster("Empty"), "--members") == []
    assert lines(cluster("Dead", *MEMBERS), "--members") == []


def test_the_lag_of_each_partition_that_is_read_is_shown() -> None:
    client = cluster("Stable", *MEMBERS)
    assert [line.split() for line in lines(client)] == [
        ["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"],
        ["app", "app-by-key-repartition", "0", "0"],
        ["app", "app-by-key-repartition", "1", "7"],
        ["app", "in", "0", "4"],
    ]
    assert [line.split()[3:] for line in lines(client, "--offsets", "--verbose")] == [
        ["CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET", "OFFSET-LAG"],
        ["9", "-", "9", "0"],
        ["-", "-", "9", "7"],
        ["5", "3", "9", "4"],
    ]
    assert lines(cluster("Empty")) == []


def test_a_task_of_no_known_subtopology_is_an_error() -> None:
    said = run(cluster("Stable", *MEMBERS, parts=PARTS[:1]), "--describe", "--group", "app")
    assert (said.code, "Subtopology 1 not found in group description!" in said.out + said.err) == (1, True)


def test_internal_topics_go_with_their_group_and_no_others() -> None:
    client = cluster("Empty")
    said = run(client, "--delete", "--group", "app", "--delete-all-internal-topics")
    client.delete_topics.assert_called_once_with(["app-by-key-repartition", "app-count-changelog"])
    assert said.out.endswith("Deletion of associated internal topics of the streams groups ('app') was successful.\n")
    client = cluster("Empty")
    run(client, "--delete", "--group", "app")
    client.delete_topics.assert_not_called()


def test_a_topic_with_another_form_of_name_is_left_and_named() -> None:
    client = cluster("Empty", parts=(SubtopologyDescription("0", ("in",), (), ("other-changelog",), ()),))
    said = run(client, "--delete", "--group", "app", "--delete-all-internal-topics")
    assert "Error: The internal topic 'other-changelog' is not inferred as internal and thus will not be " in said.out
    client.delete_topics.assert_not_called()


def test_an_internal_topic_that_stays_is_named() -> None:
    client = cluster("Empty")
    refused = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not yours")
    client.delete_topics.return_value = Results({}, {"app-count-changelog": refused})
    said = run(client, "--delete", "--group", "app", "--delete-all-internal-topics").out
    assert said.startswith("Failed to delete internal topic: app-count-changelog\n")
    first, second = said.splitlines()[-2:]
    assert first == "Deletion of some associated internal topics failed:"
    assert second.startswith("* Internal topics of the streams group 'app' could not be deleted due to: ")
    assert "not yours" in second


@pytest.mark.parametrize("state", ["Stable", "Empty"])
def test_internal_topics_of_a_group_that_stays_stay(state: str) -> None:
    client = cluster(state)
    refused = KafkaError(ErrorCode.NON_EMPTY_GROUP, "in use")
    client.delete_groups.return_value = Results({}, {"app": refused} if state == "Empty" else {})
    run(client, "--delete", "--group", "app", "--delete-all-internal-topics")
    client.delete_topics.assert_not_called()


# ---- reset


def reset(client: mock.Mock, *words: str) -> Said:
    return run(client, "--reset-offsets", "--group", "app", *words)


def empty(state: str = "Empty") -> mock.Mock:
    """As `cluster`, with two partitions of `in`, of which the group has committed one."""
    client = cluster(state)
    here = TopicDescription(
        "in", ID, internal=False, partitions=tuple(partition(number, 1, "1", "1") for number in (0, 1))
    )
    client.describe_topics.side_effect = lambda names: Results(dict.fromkeys(names, here), {})
    client.alter_group_offsets.return_value = Results({}, {})
    return client


def table(*rows: str) -> str:
    heads = "\nGROUP                          TOPIC                          PARTITION  NEW-OFFSET     "
    return heads + "".join(f"\napp                            {row:<57}" for row in rows) + "\n"


def test_input_topics_are_reset_when_that_is_to_be_executed() -> None:
    client = empty()
    row = "in                             0          2"
    assert reset(client, "--all-input-topics", "--to-earliest", "--dry-run") == (0, table(row), "")
    client.alter_group_offsets.assert_not_called()
    assert reset(client, "--all-input-topics", "--to-earliest", "--execute") == (0, table(row), "")
    client.alter_group_offsets.assert_called_once_with("app", {IN: 2})
    client.delete_topics.assert_not_called()
    assert reset(client, "--all-input-topics", "--to-latest", "--dry-run", "--export").out == "in,0,9\n\n"


def test_a_group_that_does_not_read_a_topic_is_not_reset_to_it() -> None:
    client = empty()
    said = reset(client, "--input-topic", "in:0", "--to-earliest", "--dry-run")
    assert said == (0, table("in                             0          2"), "")
    said = reset(client, "--input-topic", "in", "--to-earliest", "--dry-run")
    assert said == (0, "\nError: One or more topics are not part of the group 'app'.\n" + table(), "")


@pytest.mark.parametrize(
    ("topic", "why"), [("in:7", 'The partitions "in-7" do not exist'), ("in", 'The partitions "in-1" have no leader')]
)
def test_an_input_topic_is_reset_where_all_partitions_are_there_with_a_leader(topic: str, why: str) -> None:
    client = empty()
    parts = (partition(0, 1, "1", "1"), partition(1, None, "1", "1"))
    client.describe_topics.side_effect = lambda names: Results(
        dict.fromkeys(names, TopicDescription("in", ID, internal=False, partitions=parts)), {}
    )
    said = reset(client, "--input-topic", topic, "--to-earliest", "--execute")
    assert said.out == f"\nError: Executing streams group command failed due to {why}\n"
    client.alter_group_offsets.assert_not_called()


def test_a_group_with_members_is_not_reset() -> None:
    said = reset(empty("Stable"), "--all-input-topics", "--to-earliest", "--execute")
    assert "Assignments can only be reset if the group 'app' is inactive, but the current state is Stable." in said.out


def test_no_groups_are_reset_to_nothing() -> None:
    client = empty()
    client.list_groups.return_value = []
    words = ("--reset-offsets", "--all-groups", "--all-input-topics", "--to-earliest", "--dry-run")
    assert run(client, *words) == (0, "\n", "")


def test_a_group_that_is_gone_is_reset_and_other_errors_end_the_tool() -> None:
    client = empty()
    gone = [KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "gone"), KafkaError(ErrorCode.NOT_COORDINATOR, "away")]
    client.describe_streams_group.side_effect = gone[:1]
    said = reset(client, "--input-topic", "in:0", "--to-latest", "--execute")
    assert said == (0, table("in                             0          9"), "")
    client.describe_streams_group.side_effect = gone[1:]
    said = reset(client, "--input-topic", "in:0", "--to-latest", "--execute")
    why = "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.NotCoordinatorException: away\n"
    assert (said.code, said.err) == (1, why)


@pytest.mark.parametrize(
    ("words", "asked", "errors", "told"),
    [
        (["--delete-all-internal-topics"], ["app-by-key-repartition", "app-count-changelog"], {}, ""),
        (["--delete-internal-topic", "app-count-changelog"], ["app-count-changelog"], {}, ""),
        (
            ["--delete-internal-topic", "x"],
            ["x"],
            {"x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
            "\nError: Deleting internal topics for group 'app' failed because the topics do not exist.\n",
        ),
        (
            ["--delete-internal-topic", "x"],
            ["x"],
            {"x": ErrorCode.TOPIC_AUTHORIZATION_FAILED},
            "\nError: Deleting internal topics for group 'app' failed due to no\n",
        ),
    ],
)
def test_internal_topics_are_deleted_with_a_reset(
    words: list[str], asked: list[str], errors: dict[str, ErrorCode], told: str
) -> None:
    client = empty()
    client.delete_topics.return_value = Results({}, {name: KafkaError(code, "no") for name, code in errors.items()})
    said = reset(client, "--all-input-topics", "--to-earliest", "--execute", *words)
    assert said == (0, told + table("in                             0          2"), "")
    client.delete_topics.assert_called_once_with(asked)


def test_offsets_of_all_input_topics_are_deleted_and_no_others() -> None:
    client = empty()
    client.delete_group_offsets.return_value = Results({IN: None}, {})
    said = run(client, "--delete-offsets", "--group", "app", "--all-input-topics")
    assert said.code == 0
    assert [call.args for call in client.delete_group_offsets.call_args_list] == [("app", [IN])]
    client.describe_streams_group.side_effect = KafkaError(ErrorCode.NOT_COORDINATOR, "away")
    said = run(client, "--delete-offsets", "--group", "app", "--all-input-topics")
    why = "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.NotCoordinatorException: away"
    assert (said.code, said.out) == (1, f"\nError: Executing streams group command failed due to {why}\n")
