"""Who leads when brokers come and go, by request and by the check of all partitions."""

from typing import Any

import pytest

from ottla.controller.controller import NEWEST
from ottla.controller.election import take_over
from ottla.kernel.error import ErrorCode
from ottla.metadata.image import BROKER
from ottla.wire.api.alter_partition import AlterPartitionRequest
from ottla.wire.api.alter_partition import BrokerState as AlterBroker
from ottla.wire.api.alter_partition import RequestPartitionData as AlterOne
from ottla.wire.api.alter_partition import RequestTopicData as AlterTopic
from ottla.wire.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest
from ottla.wire.record.metadata import ConfigRecord, PartitionChangeRecord
from tests.controller.fleet import Fleet
from tests.controller.scene import registration

PREFERRED, UNCLEAN = 0, 1
UNCLEAN_ALLOWED: dict[str, str | None] = {"unclean.leader.election.enable": "true"}


def elect(fleet: Fleet, kind: int, name: str = "flights") -> ErrorCode:
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=[TopicPartitions(topic=name, partitions=[0])], timeout_ms=1000
    )
    return ErrorCode(fleet.ask(request).replica_election_results[0].partition_result[0].error_code)


def test_a_broker_that_comes_back_leads_what_has_no_leader() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2])
    fleet.silence(1)
    fleet.silence(2)
    fleet.start(1)
    assert fleet.partition("flights").leader == -1, "it was out of sync when the last leader went"
    fleet.start(2)
    partition = fleet.partition("flights")
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (2, (2,), ())


def test_the_first_replica_is_elected_only_when_it_is_in_sync() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2])
    assert elect(fleet, PREFERRED) is ErrorCode.ELECTION_NOT_NEEDED
    fleet.silence(1)
    fleet.start(1)
    assert elect(fleet, PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    fleet.alter("flights", [2, 1])
    assert elect(fleet, PREFERRED) is ErrorCode.NONE
    assert fleet.partition("flights").leader == 1


def test_an_eligible_replica_does_not_lead_while_one_is_in_sync() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [2, 1], configs={"min.insync.replicas": "2"})
    fleet.beat(2, want_fence=True)
    fleet.beat(2)
    assert (fleet.partition("flights").isr, fleet.partition("flights").eligible_leader_replicas) == ((1,), (2,))
    assert elect(fleet, PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_an_unclean_election_takes_any_replica_that_is_there() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2])
    assert elect(fleet, UNCLEAN) is ErrorCode.ELECTION_NOT_NEEDED
    fleet.silence(2)
    fleet.silence(1)
    assert elect(fleet, UNCLEAN) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    fleet.start(2)
    assert elect(fleet, UNCLEAN) is ErrorCode.NONE
    partition = fleet.partition("flights")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 1)
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())


def test_first_replicas_lead_again_after_a_while() -> None:
    fleet = Fleet(2, leader_imbalance_check_interval_seconds="60", broker_session_timeout_ms="100000000")
    fleet.topic("flights", [1, 2])
    fleet.beat(1, want_fence=True)
    fleet.beat(1)
    fleet.alter("flights", [2, 1])
    fleet.wait(59_999)
    assert fleet.partition("flights").leader == 2
    fleet.wait(1)
    assert fleet.partition("flights").leader == 1
    written = len(fleet.log)
    fleet.wait(600_000)
    assert len(fleet.log) == written


def test_an_election_of_all_tells_only_those_that_changed_or_could_not() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2], [2, 1], [1, 2])
    fleet.silence(1)
    fleet.start(1)
    fleet.alter("flights", [2, 1])
    response = fleet.ask(ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None, timeout_ms=1000))
    (topic,) = response.replica_election_results
    assert [(each.partition_id, each.error_code) for each in topic.partition_result] == [
        (0, ErrorCode.NONE),
        (2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ]
    named = ElectLeadersRequest(
        election_type=PREFERRED, topic_partitions=[TopicPartitions(topic="flights", partitions=[0, 1, 3, -1])]
    )
    assert [each.error_code for each in fleet.ask(named).replica_election_results[0].partition_result] == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert elect(fleet, PREFERRED, "none") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fleet.ask(ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=[])).replica_election_results == []
    assert fleet.refused(ElectLeadersRequest(election_type=2, topic_partitions=None)) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("asked", "is_atomic"),
    [
        ("a topic", True),
        ("elections", False),
        ("a heartbeat", False),
        ("a registration", False),
        ("a changed ISR", False),
        ("directories", False),
        ("a broker's end", False),
        ("what is due", False),
    ],
)
def test_only_what_must_stand_together_is_one_batch_however_long(asked: str, is_atomic: bool) -> None:
    """As Apache Kafka's ControllerResult: a decision about many partitions may be cut between two of its records."""
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2])
    partition, epoch = fleet.partition("flights"), fleet.image.brokers[1].epoch
    topic_id = fleet.image.topics["flights"].topic_id
    requests: dict[str, Any] = {
        "a topic": CreateTopicsRequest(
            topics=[CreatableTopic(name="trains", num_partitions=3, replication_factor=1)], timeout_ms=1000
        ),
        "elections": ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None),
        "a heartbeat": BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, want_fence=True),
        "a registration": registration(3),
        "a changed ISR": AlterPartitionRequest(
            broker_id=1,
            broker_epoch=epoch,
            topics=[
                AlterTopic(
                    topic_id=topic_id,
                    partitions=[
                        AlterOne(
                            partition_index=0,
                            leader_epoch=partition.leader_epoch,
                            partition_epoch=partition.partition_epoch,
                            new_isr_with_epochs=[AlterBroker(broker_id=1, broker_epoch=epoch)],
                        )
                    ],
                )
            ],
        ),
        "directories": AssignReplicasToDirsRequest(broker_id=1, broker_epoch=epoch, directories=[]),
        "a broker's end": UnregisterBrokerRequest(broker_id=2),
    }
    if asked == "what is due":
        fleet.now_ms += 10_000_000
        decision = fleet.controller.time_passed(fleet.image, fleet.now_ms)
        assert decision.records
    else:
        decision = fleet.controller.handle(fleet.image, requests[asked], NEWEST, now_ms=fleet.now_ms)
    assert decision.atomic is is_atomic


def test_leaders_stay_where_they_are_when_that_is_wanted() -> None:
    fleet = Fleet(2, auto_leader_rebalance_enable="false", broker_session_timeout_ms="100000000")
    fleet.topic("flights", [1, 2])
    fleet.beat(1, want_fence=True)
    fleet.beat(1)
    fleet.alter("flights", [2, 1])
    fleet.wait(10_000_000)
    assert fleet.partition("flights").leader == 2


def test_a_thousand_leaders_are_moved_at_a_time() -> None:
    fleet = Fleet(2, broker_session_timeout_ms="100000000")
    fleet.topic("flights", *[[1, 2]] * 1200)
    fleet.beat(1, want_fence=True)
    fleet.beat(1)
    fleet.alter_all("flights", [2, 1])
    fleet.now_ms += 300_000
    counts = []
    while (due := fleet.controller.deadline_ms()) is not None and due <= fleet.now_ms + 10:
        fleet.now_ms = max(fleet.now_ms, due)
        records = fleet.controller.time_passed(fleet.image, fleet.now_ms).records
        fleet.append(records)
        counts.append(len(records))
    assert [count for count in counts if count] == [1000, 200]


def test_any_replica_leads_after_a_while_where_the_topic_allows_it() -> None:
    fleet = Fleet(2, broker_session_timeout_ms="100000000")
    fleet.topic("flights", [1, 2])
    fleet.topic("trains", [1, 2], configs=UNCLEAN_ALLOWED)
    fleet.beat(2, want_fence=True)
    fleet.beat(1, want_fence=True)
    fleet.beat(2)
    assert [fleet.partition(name).leader for name in ("flights", "trains")] == [-1, 2]
    fleet = Fleet(2, broker_session_timeout_ms="100000000")
    fleet.topic("trains", [1, 2])
    fleet.beat(2, want_fence=True)
    fleet.beat(1, want_fence=True)
    fleet.beat(2)
    fleet.set("trains", "unclean.leader.election.enable", "true")
    fleet.wait(299_999)
    assert fleet.partition("trains").leader == -1
    fleet.wait(1)
    assert fleet.partition("trains").leader == 2


def test_a_look_at_the_clock_elects_nothing_before_its_time() -> None:
    """Something else was due, or a timer came early."""
    fleet = Fleet(2, broker_session_timeout_ms="100000000")
    fleet.topic("trains", [1, 2])
    fleet.beat(2, want_fence=True)
    fleet.beat(1, want_fence=True)
    fleet.beat(2)
    fleet.set("trains", "unclean.leader.election.enable", "true")
    due_ms = fleet.controller.deadline_ms()
    assert fleet.controller.time_passed(fleet.image, fleet.now_ms).records == []
    assert fleet.controller.deadline_ms() == due_ms


def test_what_an_unregistered_broker_led_is_led_by_one_in_sync() -> None:
    fleet = Fleet(4, node_id="1")
    fleet.topic("flights", [2, 3, 4])
    fleet.topic("trains", [2])
    fleet.ask(UnregisterBrokerRequest(broker_id=2))
    assert 2 not in fleet.image.brokers
    assert (fleet.partition("flights").leader, fleet.partition("flights").isr) == (3, (3, 4))
    assert (fleet.partition("trains").leader, fleet.partition("trains").isr) == (-1, ())
    assert fleet.refused(UnregisterBrokerRequest(broker_id=2)) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert fleet.refused(UnregisterBrokerRequest(broker_id=1)) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("value", "eligible"),
    [
        ("3", (3,)),
        (" 3 ", (3,)),
        ("2", ()),
        ("abc", ()),
        ("", ()),
        ("0", ()),
        ("-3", ()),
        ("3.0", ()),
        ("9" * 5000, ()),
    ],
)
def test_a_least_isr_that_is_no_number_does_not_stop_the_controller(value: str, eligible: tuple[int, ...]) -> None:
    """Apache Kafka's controllers let any value of a broker's config through; the file's counts instead, 2 here."""
    fleet = Fleet(3, min_insync_replicas="2")
    fleet.topic("t", [1, 2, 3])
    fleet.append([ConfigRecord(resource_type=BROKER, resource_name="", name="min.insync.replicas", value=value)])
    fleet.silence(3)
    assert (fleet.partition("t").isr, fleet.partition("t").eligible_leader_replicas) == ((1, 2), eligible)


def test_the_last_known_leader_leads_again_and_is_to_recover() -> None:
    fleet = Fleet(2)
    topic_id = fleet.topic("flights", [1, 2])
    fleet.append(
        [
            PartitionChangeRecord(
                topic_id=topic_id,
                partition_id=0,
                leader=-1,
                isr=[],
                eligible_leader_replicas=[],
                last_known_elr=[2],
            )
        ]
    )
    assert take_over(fleet.image, 1, crashed=False) == []
    fleet.append(take_over(fleet.image, 2, crashed=False))
    partition = fleet.partition("flights")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 1)
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())
    # It leads another replica's partition no more than before.
    assert take_over(fleet.image, 1, crashed=True) == []
