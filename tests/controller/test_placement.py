"""Which brokers get a new topic's replicas, and what a cluster of many nodes says to features."""

from collections import Counter
from random import Random

import pytest

from ottla.controller.placement import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    default_directory,
    directory_is_online,
    place,
)
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.metadata.image import BROKER
from ottla.wire.api.controller_registration import ControllerRegistrationRequest
from ottla.wire.api.controller_registration import Feature as ControllerFeature
from ottla.wire.api.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.create_topics import CreatableReplicaAssignment
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.record.metadata import ConfigRecord
from tests.controller.fleet import Fleet
from tests.controller.scene import directory


def racked(count: int, racks: int) -> Fleet:
    fleet = Fleet(0)
    for broker_id in range(1, count + 1):
        fleet.register(broker_id, rack=f"rack-{broker_id % racks}")
        fleet.beat(broker_id)
    return fleet


@pytest.mark.parametrize("seed", range(10))
def test_replicas_are_in_different_racks_and_leaders_everywhere(seed: int) -> None:
    fleet = racked(6, 3)
    placed = place(fleet.image, Random(seed), 60, 3)
    for replicas in placed:
        assert len(set(replicas)) == 3
        assert {broker_id % 3 for broker_id in replicas} == {0, 1, 2}
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}
    assert len({frozenset(replicas) for replicas in placed}) > 4, "not always the same brokers together"


@pytest.mark.parametrize("seed", range(10))
def test_racks_of_different_sizes_take_turns(seed: int) -> None:
    fleet = Fleet(0)
    for broker_id, rack in ((1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, None)):
        fleet.register(broker_id, rack=rack)
        fleet.beat(broker_id)
    for replicas in place(fleet.image, Random(seed), 50, 3):
        assert {4, 5} <= set(replicas), "there are three racks and three replicas"
    for replicas in place(fleet.image, Random(seed), 50, 5):
        assert sorted(replicas) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", range(5))
def test_a_fenced_broker_follows_where_there_is_no_other_and_never_leads(seed: int) -> None:
    fleet = racked(4, 2)
    fleet.silence(4)
    for replicas in place(fleet.image, Random(seed), 20, 4):
        assert replicas[0] != 4
        assert sorted(replicas) == [1, 2, 3, 4]
    result = fleet.create("flights", num_partitions=5, replication_factor=4)
    assert result.error_code == ErrorCode.NONE
    for partition in fleet.image.topics["flights"].partitions:
        assert set(partition.isr) == {1, 2, 3}


@pytest.mark.parametrize("seed", range(6))
def test_a_rack_without_a_live_broker_leads_nothing_and_follows(seed: int) -> None:
    fleet = racked(6, 3)
    fleet.silence(1, 4)
    placed = place(fleet.image, Random(seed), 24, 3)
    assert {broker_id % 3 for replicas in placed for broker_id in replicas[:1]} == {0, 2}
    assert all({broker_id % 3 for broker_id in replicas} == {0, 1, 2} for replicas in placed)
    # The rack before which a turn comes to the dead one takes its turn, too.
    assert {replicas[0] for replicas in placed} == {2, 3, 5, 6}


@pytest.mark.parametrize("directories", [0, 1, 2])
def test_the_directory_of_a_new_replica_is_the_only_one_its_broker_has(directories: int) -> None:
    # Before directories had ids, a broker registered without.
    fleet = Fleet(0, directories=directories, features=None if directories else {"metadata.version": 14})
    fleet.register(1)
    if directories == 1:
        assert default_directory(fleet.image, 1) == fleet.image.brokers[1].log_dirs[0]
    else:
        assert default_directory(fleet.image, 1) == (UNASSIGNED_DIRECTORY if directories else MIGRATING_DIRECTORY)
    assert default_directory(fleet.image, 2) == UNASSIGNED_DIRECTORY, "a broker that was unregistered"


def test_a_broker_that_stops_or_has_no_directory_left_gets_nothing() -> None:
    fleet = Fleet(4)
    fleet.topic("flights", [1, 2])
    fleet.beat(1, want_shut_down=True)
    fleet.beat(2, cordoned_log_dirs=[directory(20)])
    assert {broker for replicas in place(fleet.image, Random(1), 20, 2) for broker in replicas} == {3, 4}
    with pytest.raises(KafkaError, match="only 2 broker"):
        place(fleet.image, Random(1), 1, 3)
    fleet.silence(3, 4)
    with pytest.raises(KafkaError, match="All brokers are currently fenced"):
        place(fleet.image, Random(1), 1, 1)


def test_more_brokers_than_there_are_cannot_be() -> None:
    fleet = Fleet(2)
    result = fleet.create("flights", num_partitions=1, replication_factor=3)
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert (result.error_message or "").startswith("Unable to replicate the partition 3 time(s): The target")


def test_an_assignment_of_ones_own_is_checked() -> None:
    fleet = Fleet(3)
    fleet.silence(3)
    topic_id = fleet.topic("flights", [2, 3], [3, 1])
    assert [each.isr for each in fleet.image.topics["flights"].partitions] == [(2,), (1,)]
    assert [each.leader for each in fleet.image.topics["flights"].partitions] == [2, 1]
    only_fenced = [CreatableReplicaAssignment(partition_index=0, broker_ids=[3])]
    assert fleet.create("trains", assignments=only_fenced).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    added = [CreatePartitionsAssignment(broker_ids=[1, 2])]
    more = CreatePartitionsTopic(name="flights", count=3, assignments=added)
    assert fleet.ask(CreatePartitionsRequest(topics=[more])).results[0].error_code == ErrorCode.NONE
    assert fleet.partition("flights", 2).replicas == (1, 2)
    added[0].broker_ids = [1]
    more.count = 4
    assert fleet.ask(CreatePartitionsRequest(topics=[more])).results[0].error_code == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT
    )
    assert fleet.image.topics["flights"].topic_id == topic_id


def update(fleet: Fleet, feature: str, level: int) -> str | None:
    wanted = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=1 if level else 2)
    message: str | None = fleet.ask(UpdateFeaturesRequest(feature_updates=[wanted]), 2).error_message
    return message


def test_a_level_is_one_that_every_broker_and_controller_can_run() -> None:
    fleet = Fleet(2, features={"metadata.version": 28})
    fleet.silence(2)
    fleet.register(2, features=[each for each in Fleet(1).features() if each.name != "group.version"])
    assert "Broker 2 does not support this feature." in (update(fleet, "group.version", 1) or "")
    able = [ControllerFeature(name="metadata.version", min_supported_version=7, max_supported_version=28)]
    fleet.ask(ControllerRegistrationRequest(controller_id=9, incarnation_id=Uuid(bytes(15) + b"9"), features=able))
    assert "Controller 9 only supports versions 7-28" in (update(fleet, "metadata.version", 29) or "")
    fleet.controller.voters = (3000, 9, 8)
    assert "controller 8 has not registered" in (update(fleet, "metadata.version", 28) or "")


def test_eligible_leaders_need_one_least_isr_for_the_cluster() -> None:
    fleet = Fleet(1, features={"metadata.version": 30}, min_insync_replicas="2")
    fleet.append([ConfigRecord(resource_type=BROKER, resource_name="1", name="min.insync.replicas", value="3")])
    assert update(fleet, "eligible.leader.replicas.version", 1) is None
    assert fleet.image.config(BROKER, "") == {"min.insync.replicas": "2"}
    assert fleet.image.config(BROKER, "1") == {}


@pytest.mark.parametrize("known", [(), (Uuid(b"d" * 16),)])
def test_what_lies_in_a_lost_directory_is_offline(known: tuple[Uuid, ...]) -> None:
    """Also where the controller does not know what directories the broker has."""
    assert not directory_is_online(LOST_DIRECTORY, known)
    assert directory_is_online(Uuid(b"d" * 16), known)
