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
from ottla.client.admin.result import GroupListing, GroupType, ListedOffset, OffsetSpec, Results
from ottla.client.admin.streams_group import (
    StreamsGroupDescription,
    StreamsMemberDescription,
    StreamsTasks,
    SubtopologyDescription,
)
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.error import ErrorCode, KafkaError
from tests.cli.kafka_tool import kafka
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
