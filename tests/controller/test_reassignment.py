"""Partitions move to other brokers, and may be called back."""

import pytest

from ottla.kernel.error import ErrorCode
from ottla.wire.api import alter_partition_reassignments as alter
from ottla.wire.api import list_partition_reassignments as listing
from ottla.wire.record.metadata import PartitionChangeRecord
from tests.controller.fleet import Fleet


def move(fleet: Fleet, replicas: list[int] | None, **fields: bool) -> tuple[ErrorCode, str | None]:
    moved = alter.ReassignablePartition(partition_index=0, replicas=replicas)
    topic = alter.ReassignableTopic(name="flights", partitions=[moved])
    response = fleet.ask(alter.AlterPartitionReassignmentsRequest(topics=[topic], **fields))
    answer = response.responses[0].partitions[0]
    return ErrorCode(answer.error_code), answer.error_message


def moving(fleet: Fleet) -> list[listing.OngoingTopicReassignment]:
    topics: list[listing.OngoingTopicReassignment] = fleet.ask(
        listing.ListPartitionReassignmentsRequest(topics=None)
    ).topics
    return topics


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet(6)
    made.topic("flights", [1, 2, 3])
    return made


def test_old_replicas_stay_until_the_new_are_in_sync(fleet: Fleet) -> None:
    assert move(fleet, [3, 4, 5]) == (ErrorCode.NONE, None)
    partition = fleet.partition("flights")
    assert partition.replicas == (3, 4, 5, 1, 2)
    assert (partition.adding_replicas, partition.removing_replicas) == ((4, 5), (1, 2))
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, (1, 2, 3))
    assert moving(fleet)[0].partitions[0].adding_replicas == [4, 5]
    assert fleet.alter("flights", [1, 2, 3, 4]).error_code == ErrorCode.NONE
    assert fleet.partition("flights").is_reassigning
    answer = fleet.alter("flights", [1, 2, 3, 4, 5])
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = fleet.partition("flights")
    assert (partition.replicas, partition.isr, partition.leader) == ((3, 4, 5), (3, 4, 5), 3)
    assert not partition.is_reassigning
    assert len(partition.directories) == 3
    assert moving(fleet) == []


def test_each_replica_keeps_its_directory(fleet: Fleet) -> None:
    move(fleet, [3, 1, 4])
    fleet.alter("flights", [1, 3, 4])
    partition = fleet.partition("flights")
    assert partition.replicas == (3, 1, 4)
    assert list(partition.directories) == [fleet.image.brokers[each].log_dirs[0] for each in (3, 1, 4)]


def test_a_leader_that_stays_begins_an_epoch_when_replicas_leave(fleet: Fleet) -> None:
    move(fleet, [1, 4, 5])
    answer = fleet.alter("flights", [1, 4, 5])
    assert (answer.error_code, answer.leader_id, answer.leader_epoch, answer.isr) == (0, 1, 1, [1, 4, 5])


def test_fewer_replicas_wait_until_all_that_stay_are_in_sync(fleet: Fleet) -> None:
    fleet.alter("flights", [1, 2])
    move(fleet, [3, 4])
    assert fleet.alter("flights", [1, 2, 4]).error_code == ErrorCode.NONE
    assert fleet.partition("flights").is_reassigning
    assert fleet.alter("flights", [1, 2, 3, 4]).error_code == ErrorCode.NEW_LEADER_ELECTED
    assert fleet.partition("flights").replicas == (3, 4)


def test_a_replica_that_left_is_no_eligible_leader_when_it_is_added_again() -> None:
    fleet = Fleet(3)
    fleet.topic("flights", [1, 2, 3], configs={"min.insync.replicas": "3"})
    move(fleet, [1, 2])
    assert (fleet.partition("flights").replicas, fleet.partition("flights").isr) == ((1, 2), (1, 2))
    assert fleet.partition("flights").eligible_leader_replicas == ()
    move(fleet, [1, 2, 3])
    fleet.silence(1, 2)
    assert fleet.partition("flights").leader == -1, "3 has no record of those since it left"


def test_a_move_under_way_takes_another_goal(fleet: Fleet) -> None:
    move(fleet, [1, 2, 4])
    move(fleet, [1, 2, 5])
    partition = fleet.partition("flights")
    assert partition.replicas == (1, 2, 5, 3, 4)
    assert (partition.adding_replicas, partition.removing_replicas) == ((5,), (3, 4))


def test_a_move_ends_whose_new_replica_a_later_goal_drops(fleet: Fleet) -> None:
    move(fleet, [1, 2, 4])
    assert move(fleet, [1, 2, 3]) == (ErrorCode.NONE, None)
    partition = fleet.partition("flights")
    assert (partition.replicas, partition.isr, partition.is_reassigning) == ((1, 2, 3), (1, 2, 3), False)


def test_a_move_that_waits_for_a_replica_that_stays_waits_for_none_that_is_dropped(fleet: Fleet) -> None:
    fleet.alter("flights", [1, 2])
    move(fleet, [1, 2, 4])
    move(fleet, [1, 2, 3])
    partition = fleet.partition("flights")
    assert (partition.adding_replicas, partition.removing_replicas) == ((4,), (4,))
    assert fleet.alter("flights", [1, 2, 4]).error_code == ErrorCode.NONE
    assert fleet.partition("flights").is_reassigning
    assert fleet.alter("flights", [1, 2, 3, 4]).error_code == ErrorCode.NONE
    partition = fleet.partition("flights")
    assert (partition.replicas, partition.isr, partition.is_reassigning) == ((1, 2, 3), (1, 2, 3), False)


def test_a_move_is_taken_back(fleet: Fleet) -> None:
    move(fleet, [4, 5, 6])
    fleet.alter("flights", [1, 2, 3, 4])
    assert move(fleet, None) == (ErrorCode.NONE, None)
    partition = fleet.partition("flights")
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ((1, 2, 3), (1, 2, 3), 1, 1)
    assert move(fleet, None)[0] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_whose_old_replicas_are_out_of_sync_is_not_taken_back(fleet: Fleet) -> None:
    move(fleet, [4, 5, 6])
    fleet.alter("flights", [1, 4])
    fleet.silence(1)
    assert (fleet.partition("flights").leader, fleet.partition("flights").isr) == (4, (4,))
    code, why = move(fleet, None)
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "would require an unclean leader election" in (why or "")
    fleet.set("flights", "unclean.leader.election.enable", "true")
    assert move(fleet, None) == (ErrorCode.NONE, None)
    partition = fleet.partition("flights")
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2, 3), (2,), 2)


def test_the_factor_stays_when_that_is_wanted(fleet: Fleet) -> None:
    code, why = move(fleet, [1, 2], allow_replication_factor_change=False)
    assert (code, why) == (ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor is changed from 3 to 2")
    move(fleet, [1, 2, 4])
    assert move(fleet, [1, 4, 5], allow_replication_factor_change=False)[0] is ErrorCode.NONE


def test_replicas_that_cannot_be_are_refused(fleet: Fleet) -> None:
    for replicas in ([], [1, 1], [9]):
        assert move(fleet, replicas)[0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_partitions_of_one_request_fail_alone(fleet: Fleet) -> None:
    partitions = [alter.ReassignablePartition(partition_index=index, replicas=[1, 2, 4]) for index in (-1, 0, 1)]
    topics = [alter.ReassignableTopic(name=name, partitions=partitions) for name in ("none", "flights")]
    response = fleet.ask(alter.AlterPartitionReassignmentsRequest(topics=topics))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [
        (topic.name, [(one.partition_index, one.error_code, one.error_message) for one in topic.partitions])
        for topic in response.responses
    ] == [
        ("none", [(index, unknown, "Unable to find a topic named none.") for index in (-1, 0, 1)]),
        (
            "flights",
            [
                (-1, unknown, "Unable to find partition flights:-1."),
                (0, ErrorCode.NONE, None),
                (1, unknown, "Unable to find partition flights:1."),
            ],
        ),
    ]
    assert response.error_code == ErrorCode.NONE
    assert fleet.partition("flights").adding_replicas == (4,)


def test_moves_are_listed_where_they_are_asked_for(fleet: Fleet) -> None:
    fleet.topic("trains", [1, 2, 3], [1, 2, 3], [1, 2, 3])
    trains = alter.ReassignableTopic(
        name="trains",
        partitions=[alter.ReassignablePartition(partition_index=index, replicas=[3, 4]) for index in (0, 2)],
    )
    fleet.ask(alter.AlterPartitionReassignmentsRequest(topics=[trains]))

    def listed(asked: dict[str, list[int]] | None) -> dict[str, list[int]]:
        topics = (
            None
            if asked is None
            else [
                listing.ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                for name, indexes in asked.items()
            ]
        )
        found = fleet.ask(listing.ListPartitionReassignmentsRequest(topics=topics)).topics
        return {topic.name: [one.partition_index for one in topic.partitions] for topic in found}

    assert listed(None) == {"trains": [0, 2]}
    assert listed({"trains": [1, 2, 7], "none": [0], "flights": [0]}) == {"trains": [2]}
    assert listed({"trains": []}) == listed({}) == {}
    (shown, _) = moving(fleet)[0].partitions
    assert (shown.replicas, shown.adding_replicas, shown.removing_replicas) == ([3, 4, 1, 2], [4], [1, 2])


def test_a_move_without_an_old_replica_left_is_not_taken_back(fleet: Fleet) -> None:
    """A log of an older version may say so; there is nothing to go back to."""
    topic_id = fleet.image.topics["flights"].topic_id
    fleet.append([PartitionChangeRecord(topic_id=topic_id, partition_id=0, adding_replicas=[1, 2, 3])])
    code, why = move(fleet, None)
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert why == "Invalid replica assignment: addingReplicas contains all replicas."
    assert fleet.partition("flights").adding_replicas == (1, 2, 3)


def test_moves_of_a_partition_build_on_each_other_in_one_request_as_in_several(fleet: Fleet) -> None:
    others = Fleet(6)
    others.topic("flights", [1, 2, 3])
    wanted: list[list[int] | None] = [[4, 5, 6], [4, 1, 2], [6, 5, 4], None, [3, 5, 1]]
    for replicas in wanted:
        move(others, replicas)
    moves = [alter.ReassignablePartition(partition_index=0, replicas=replicas) for replicas in wanted]
    fleet.ask(
        alter.AlterPartitionReassignmentsRequest(topics=[alter.ReassignableTopic(name="flights", partitions=moves)])
    )
    found, expected = fleet.partition("flights"), others.partition("flights")
    assert found == expected
