"""How nodes join, what they lead, producer ids, elections, reassignments, features."""

import pytest

from ottla.controller.broker import register_broker, unfence
from ottla.controller.placement import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import Uuid
from ottla.metadata.feature import SUPPORTED, new_cluster_levels, release_level
from ottla.wire.api import alter_partition_reassignments as alter
from ottla.wire.api import list_partition_reassignments as listing
from ottla.wire.api.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.api.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.record.metadata import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
)
from tests.controller.scene import CLUSTER_ID, Cluster, directory, registration


def restart(cluster: Cluster, *, crashed: bool, incarnation: int = 2) -> None:
    request = registration(incarnation=incarnation)
    cluster.append(register_broker(cluster.image, CLUSTER_ID, request, len(cluster.log)).records)
    cluster.append(unfence(cluster.image, 1, crashed=crashed))


def test_a_brokers_epoch_is_where_it_registered() -> None:
    cluster = Cluster()
    broker = cluster.image.brokers[1]
    assert cluster.log[broker.epoch].broker_epoch == broker.epoch
    restart(cluster, crashed=False)
    assert cluster.image.brokers[1].epoch > broker.epoch


def test_a_new_incarnation_is_fenced_until_it_serves() -> None:
    cluster = Cluster()
    cluster.append(register_broker(cluster.image, CLUSTER_ID, registration(incarnation=2), len(cluster.log)).records)
    assert cluster.image.brokers[1].fenced
    cluster.append(unfence(cluster.image, 1, crashed=False))
    assert cluster.image.brokers[1].is_active


def test_after_a_crash_every_partition_begins_a_new_leader_epoch() -> None:
    cluster = Cluster()
    cluster.create("flights", num_partitions=3)
    restart(cluster, crashed=True)
    assert [partition.leader_epoch for partition in cluster.image.topics["flights"].partitions] == [1, 1, 1]
    assert [partition.leader for partition in cluster.image.topics["flights"].partitions] == [1, 1, 1]


def test_a_new_incarnation_leads_nothing_and_is_in_no_isr() -> None:
    """Its process has died unseen: what it had acknowledged alone may be gone."""
    cluster = Cluster(brokers=3, features={"metadata.version": 21})
    assert not cluster.image.has_elr
    cluster.create("flights", num_partitions=3, replication_factor=3)
    assert {part.leader for part in cluster.image.topics["flights"].partitions} == {1, 2, 3}
    cluster.now_ms += 100_000
    assert cluster.ask(registration(2, incarnation=2)).broker_epoch > 0
    for part in cluster.image.topics["flights"].partitions:
        assert part.leader in (1, 3) and set(part.isr) == {1, 3}


def test_after_a_clean_stop_leader_epochs_stay() -> None:
    cluster = Cluster()
    cluster.create("flights", num_partitions=3)
    restart(cluster, crashed=False)
    assert [partition.leader_epoch for partition in cluster.image.topics["flights"].partitions] == [0, 0, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"leader": -1},
        {"leader": -1, "isr": [], "last_known_elr": [1]},
        {"leader": -1, "isr": [], "eligible_leader_replicas": [1]},
        {"leader": -1, "isr": [], "last_known_elr": [1], "leader_recovery_state": 1},
    ],
)
def test_a_partition_that_apache_left_without_a_leader_is_led_again(change: dict[str, object]) -> None:
    cluster = Cluster()
    topic_id = cluster.create("flights").topic_id
    cluster.append([PartitionChangeRecord(topic_id=topic_id, partition_id=0, **change)])  # type: ignore[arg-type]
    restart(cluster, crashed=False)
    partition = cluster.image.topics["flights"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), 0)
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())
    assert partition.leader_epoch == 2


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        ({"cluster_id": "another"}, "INCONSISTENT_CLUSTER_ID"),
        ({"log_dirs": []}, "INVALID_REGISTRATION"),
        ({"log_dirs": [Uuid(bytes(15) + b"\x05")]}, "INVALID_REGISTRATION"),
        ({"log_dirs": [Uuid(bytes(15) + b"\xf0")] * 2}, "INVALID_REGISTRATION"),
        ({"features": []}, "INVALID_REGISTRATION"),
        ({"is_migrating_zk_broker": True}, "BROKER_ID_NOT_REGISTERED"),
    ],
)
def test_a_registration_that_cannot_be_is_refused(broken: dict[str, object], code: str) -> None:
    cluster = Cluster()
    request = registration(incarnation=2)
    for name, value in broken.items():
        setattr(request, name, value)
    with pytest.raises(KafkaError, match=code):
        register_broker(cluster.image, CLUSTER_ID, request, len(cluster.log))


def test_a_broker_must_run_every_feature_at_its_level() -> None:
    cluster = Cluster()
    request = registration(incarnation=2)
    request.features = [each for each in request.features if each.name != "group.version"]
    with pytest.raises(KafkaError, match=r"UNSUPPORTED_VERSION: .*finalized version 1 of group\.version"):
        register_broker(cluster.image, CLUSTER_ID, request, len(cluster.log))


# ---- producer ids


def test_no_producer_id_is_given_twice() -> None:
    cluster = Cluster()
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.image.brokers[1].epoch)
    blocks = [cluster.ask(request) for _ in range(3)]
    assert [(block.producer_id_start, block.producer_id_len) for block in blocks] == [
        (0, 1000),
        (1000, 1000),
        (2000, 1000),
    ]
    assert cluster.image.next_producer_id == 3000


def test_producer_ids_go_to_registered_brokers() -> None:
    cluster = Cluster()
    for broker_id, epoch in ((1, 0), (9, 1)):
        with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
            cluster.ask(AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch))


def test_producer_ids_end() -> None:
    cluster = Cluster()
    cluster.append([ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=(1 << 63) - 500)])
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.image.brokers[1].epoch)
    with pytest.raises(KafkaError, match="Exhausted all producerIds"):
        cluster.ask(request)


# ---- elections and reassignments


def test_a_partition_led_by_its_first_replica_needs_no_election() -> None:
    cluster = Cluster()
    cluster.create("flights", num_partitions=2)
    asked = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="flights", partitions=[0, 7])])
    [answer] = cluster.ask(asked).replica_election_results
    assert [(each.error_code, each.error_message) for each in answer.partition_result] == [
        (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as flights-7"),
    ]
    [answer] = cluster.ask(ElectLeadersRequest(topic_partitions=None)).replica_election_results
    assert answer.partition_result == []


def test_the_first_replica_leads_again() -> None:
    cluster = Cluster(brokers=2)
    topic_id = cluster.create("flights", num_partitions=1, replication_factor=2).topic_id
    first, second = cluster.image.topics["flights"].partitions[0].replicas
    cluster.append([PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=second)])
    asked = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="flights", partitions=[0])])
    [answer] = cluster.ask(asked).replica_election_results
    assert answer.partition_result[0].error_code == ErrorCode.NONE
    assert cluster.image.topics["flights"].partitions[0].leader == first


@pytest.mark.parametrize(("election_type", "leader", "code"), [(0, -1, 80), (1, 2, 0)])
def test_only_an_unclean_election_takes_a_replica_that_lost_touch(election_type: int, leader: int, code: int) -> None:
    cluster = Cluster(brokers=2)
    topic_id = cluster.create("flights", num_partitions=1, replication_factor=2).topic_id
    change = PartitionChangeRecord(
        topic_id=topic_id, partition_id=0, leader=-1, isr=[1], replicas=[1, 2], directories=[]
    )
    fenced = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=cluster.image.brokers[1].epoch, fenced=1)
    cluster.append([change, fenced])
    asked = ElectLeadersRequest(
        election_type=election_type, topic_partitions=[TopicPartitions(topic="flights", partitions=[0])]
    )
    [answer] = cluster.ask(asked).replica_election_results
    partition = cluster.image.topics["flights"].partitions[0]
    assert (answer.partition_result[0].error_code, partition.leader) == (code, leader)
    if leader == 2:
        assert (partition.isr, partition.leader_recovery_state) == ((2,), 1)


def two_directories(directory_id: Uuid) -> Cluster:
    """A partition without a leader, whose one replica is said to lie in this directory."""
    cluster = Cluster(directories=2)
    topic_id = cluster.create("flights").topic_id
    change = PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=-1, directories=[directory_id])
    cluster.append([change])
    return cluster


GONE = [LOST_DIRECTORY, directory(99)]
THERE = [UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY, directory(11)]


@pytest.mark.parametrize("election_type", [0, 1])
@pytest.mark.parametrize("place", [*GONE, *THERE])
def test_only_a_replica_in_a_directory_of_its_broker_is_elected(place: Uuid, election_type: int) -> None:
    cluster = two_directories(place)
    asked = ElectLeadersRequest(
        election_type=election_type, topic_partitions=[TopicPartitions(topic="flights", partitions=[0])]
    )
    [answer] = cluster.ask(asked).replica_election_results
    refused = [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE][election_type]
    wanted = (ErrorCode.NONE, 1) if place in THERE else (refused, -1)
    assert (answer.partition_result[0].error_code, cluster.image.topics["flights"].partitions[0].leader) == wanted


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("place", [*GONE, *THERE])
def test_a_broker_that_comes_back_takes_over_only_what_is_in_its_directories(place: Uuid, *, crashed: bool) -> None:
    cluster = two_directories(place)
    request = registration(incarnation=2, directories=2)
    cluster.append(register_broker(cluster.image, CLUSTER_ID, request, len(cluster.log)).records)
    cluster.append(unfence(cluster.image, 1, crashed=crashed))
    assert cluster.image.topics["flights"].partitions[0].leader == (1 if place in THERE else -1)


@pytest.mark.parametrize("place", GONE)
def test_a_crashed_leader_begins_no_epoch_where_its_directory_is_gone(place: Uuid) -> None:
    cluster = two_directories(place)
    topic_id = cluster.image.topics["flights"].topic_id
    cluster.append([PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=1)])
    epoch = cluster.image.topics["flights"].partitions[0].leader_epoch
    request = registration(incarnation=2, directories=2)
    cluster.append(register_broker(cluster.image, CLUSTER_ID, request, len(cluster.log)).records)
    cluster.append(unfence(cluster.image, 1, crashed=True))
    assert cluster.image.topics["flights"].partitions[0].leader_epoch == epoch


def test_a_replica_that_leaves_begins_a_leader_epoch() -> None:
    cluster = Cluster(brokers=2)
    cluster.create("flights", replication_factor=2)
    before = cluster.image.topics["flights"].partitions[0]
    assert reassign(cluster, [before.leader]) == ("NONE", None)
    after = cluster.image.topics["flights"].partitions[0]
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch + 1)


@pytest.mark.parametrize("fault", ["fenced", "lost"])
def test_a_reassignment_elects_only_a_replica_that_may_lead(fault: str) -> None:
    cluster = Cluster(brokers=2)
    topic_id = cluster.create("flights", replication_factor=2).topic_id
    before = cluster.image.topics["flights"].partitions[0]
    other = 3 - before.leader
    if fault == "fenced":
        epoch = cluster.image.brokers[other].epoch
        cluster.append([BrokerRegistrationChangeRecord(broker_id=other, broker_epoch=epoch, fenced=1)])
    else:
        places = [LOST_DIRECTORY if each == other else directory(10 * each) for each in before.replicas]
        cluster.append([PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=places)])
    assert reassign(cluster, [other]) == ("NONE", None)
    assert cluster.image.topics["flights"].partitions[0].leader == -1


def test_a_leaders_replica_that_is_assigned_to_a_directory_that_failed_leads_no_more() -> None:
    cluster = Cluster(directories=2)
    topic_id = cluster.create("flights").topic_id
    broker = cluster.image.brokers[1]
    for place, leader in ((directory(11), 1), (directory(99), -1)):
        asked = AssignReplicasToDirsRequest(
            broker_id=1,
            broker_epoch=broker.epoch,
            directories=[
                RequestDirectoryData(
                    id=place,
                    topics=[RequestTopicData(topic_id=topic_id, partitions=[RequestPartitionData(partition_index=0)])],
                )
            ],
        )
        cluster.ask(asked)
        partition = cluster.image.topics["flights"].partitions[0]
        assert (partition.directories, partition.leader) == ((place,), leader)


@pytest.mark.parametrize("level", [16, 17])
def test_replicas_have_directories_from_a_level_on(level: int) -> None:
    cluster = Cluster(features={"metadata.version": level})
    asked = AssignReplicasToDirsRequest(broker_id=1, broker_epoch=cluster.image.brokers[1].epoch, directories=[])
    if level < 17:
        with pytest.raises(KafkaError, match="Directory assignment is not supported yet"):
            cluster.ask(asked)
    else:
        assert cluster.ask(asked).error_code == 0


def test_the_end_of_a_fence_is_a_number_that_kafka_knows() -> None:
    cluster = Cluster()
    change, *_ = unfence(cluster.image, 1, crashed=False)
    epoch = cluster.image.brokers[1].epoch
    assert change == BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=-1)


def test_an_unknown_kind_of_election_is_refused() -> None:
    with pytest.raises(KafkaError, match="Unknown election type 7"):
        Cluster().ask(ElectLeadersRequest(election_type=7, topic_partitions=None))


def reassign(cluster: Cluster, replicas: list[int] | None, *, partition: int = 0) -> tuple[str, str | None]:
    moved = alter.ReassignablePartition(partition_index=partition, replicas=replicas)
    topic = alter.ReassignableTopic(name="flights", partitions=[moved])
    response = cluster.ask(alter.AlterPartitionReassignmentsRequest(topics=[topic]))
    answer = response.responses[0].partitions[0]
    return ErrorCode(answer.error_code).name, answer.error_message


def test_a_move_to_where_the_partition_is_does_nothing() -> None:
    cluster = Cluster()
    cluster.create("flights")
    before = len(cluster.log)
    assert reassign(cluster, [1]) == ("NONE", None)
    assert len(cluster.log) == before


def test_moves_that_cannot_be_are_refused() -> None:
    cluster = Cluster(brokers=2)
    cluster.create("flights", replication_factor=1)
    assert reassign(cluster, None) == ("NO_REASSIGNMENT_IN_PROGRESS", None)
    assert reassign(cluster, [9])[0] == "INVALID_REPLICA_ASSIGNMENT"
    assert reassign(cluster, [1], partition=5)[0] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_replicas_are_reordered_and_dropped_at_once() -> None:
    cluster = Cluster(brokers=2)
    cluster.create("flights", replication_factor=2)
    first, second = cluster.image.topics["flights"].partitions[0].replicas
    assert reassign(cluster, [second, first]) == ("NONE", None)
    assert cluster.image.topics["flights"].partitions[0].replicas == (second, first)
    assert reassign(cluster, [second]) == ("NONE", None)
    partition = cluster.image.topics["flights"].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader) == ((second,), (second,), second)
    assert len(partition.directories) == 1


def test_a_move_under_way_is_listed_and_taken_back() -> None:
    cluster = Cluster(brokers=2)
    topic_id = cluster.create("flights", replication_factor=1).topic_id
    [replica] = cluster.image.topics["flights"].partitions[0].replicas
    other = 3 - replica
    both = [replica, other]
    places = [cluster.image.brokers[each].log_dirs[0] for each in both]
    cluster.append(
        [
            PartitionChangeRecord(
                topic_id=topic_id, partition_id=0, replicas=both, adding_replicas=[other], directories=places
            )
        ]
    )
    [topic] = cluster.ask(listing.ListPartitionReassignmentsRequest(topics=None)).topics
    assert (topic.name, topic.partitions[0].adding_replicas) == ("flights", [other])
    assert reassign(cluster, None) == ("NONE", None)
    assert cluster.ask(listing.ListPartitionReassignmentsRequest(topics=None)).topics == []
    assert cluster.image.topics["flights"].partitions[0].replicas == (replica,)


# ---- features


def update(
    cluster: Cluster, feature: str, level: int, upgrade_type: int = 1, version: int = 2, **more: bool
) -> tuple[str, str | None]:
    wanted = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
    wanted.allow_downgrade = more.pop("allow_downgrade", False)
    response = cluster.ask(UpdateFeaturesRequest(feature_updates=[wanted], **more), version)
    return ErrorCode(response.error_code).name, response.error_message


def test_a_new_cluster_has_what_apache_gives_a_new_cluster() -> None:
    assert dict(Cluster().image.features) == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }


def test_a_feature_goes_down_and_up() -> None:
    cluster = Cluster()
    assert update(cluster, "transaction.version", 1)[0] == "INVALID_UPDATE_VERSION"
    assert update(cluster, "transaction.version", 1, 2) == ("NONE", None)
    assert cluster.image.features["transaction.version"] == 1
    assert update(cluster, "transaction.version", 0, 2) == ("NONE", None)
    assert "transaction.version" not in cluster.image.features
    assert update(cluster, "transaction.version", 2) == ("NONE", None)
    assert cluster.image.features["transaction.version"] == 2


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "message"),
    [
        ("speed.version", 1, 1, "Local controller 1 does not support this feature."),
        # A level of 0 is that of a feature that is not there.
        ("speed.version", 0, 1, "Feature speed.version not found."),
        ("speed.version", 0, 2, "Feature speed.version not found."),
        ("group.version", 9, 1, "Local controller 1 only supports versions 0-1"),
        ("group.version", -1, 2, "A feature version cannot be less than 0."),
        ("group.version", 1, 0, "The controller does not support the given upgrade type."),
        ("metadata.version", 29, 2, "Refusing to perform the requested downgrade"),
        ("metadata.version", 29, 3, "Unsafe metadata downgrade is not supported in this version."),
        ("kraft.version", 0, 2, "Can't downgrade the version of this feature."),
    ],
)
def test_an_update_that_cannot_be_is_refused(feature: str, level: int, upgrade_type: int, message: str) -> None:
    cluster = Cluster()
    before = cluster.image
    code, why = update(cluster, feature, level, upgrade_type)
    assert code == "INVALID_UPDATE_VERSION"
    assert message in (why or "")
    assert cluster.image.features == before.features


@pytest.mark.parametrize(("allowed", "code"), [(True, "NONE"), (False, "INVALID_UPDATE_VERSION")])
def test_in_the_first_version_a_flag_says_whether_a_level_may_go_down(allowed: bool, code: str) -> None:
    cluster = Cluster()
    assert update(cluster, "transaction.version", 1, 1, version=0, allow_downgrade=allowed)[0] == code
    assert cluster.image.features["transaction.version"] == (1 if allowed else 2)
    # It is no unsafe downgrade, and later versions do not look at the flag.
    assert update(cluster, "metadata.version", 22, 1, version=0, allow_downgrade=True)[0] == "INVALID_UPDATE_VERSION"
    assert update(cluster, "transaction.version", 0, 1, version=1, allow_downgrade=True)[0] == "INVALID_UPDATE_VERSION"


def test_a_downgrade_does_not_raise_a_level() -> None:
    cluster = Cluster()
    assert update(cluster, "transaction.version", 0, 2) == ("NONE", None)
    for downgrade in (2, 3):
        code, why = update(cluster, "transaction.version", 1, downgrade)
        assert code == "INVALID_UPDATE_VERSION"
        assert (why or "").endswith("Can't downgrade to a newer version.")
    assert "transaction.version" not in cluster.image.features


def test_metadata_goes_up_and_down_where_no_record_is_lost() -> None:
    cluster = Cluster()
    cluster.append([FeatureLevelRecord(name="metadata.version", feature_level=28)])
    assert update(cluster, "metadata.version", 29) == ("NONE", None)
    assert update(cluster, "metadata.version", 26, 2) == ("NONE", None)
    assert update(cluster, "metadata.version", 22, 2)[0] == "INVALID_UPDATE_VERSION"
    assert update(cluster, "metadata.version", 30, validate_only=True) == ("NONE", None)
    assert cluster.image.metadata_version == 26


def test_one_bad_update_of_a_request_changes_nothing() -> None:
    cluster = Cluster()
    updates = [
        FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2),
        FeatureUpdateKey(feature="share.version", max_version_level=9),
    ]
    assert cluster.ask(UpdateFeaturesRequest(feature_updates=updates), 2).error_code
    assert cluster.image.features["group.version"] == 1


@pytest.mark.parametrize(("text", "level"), [("4.3", 30), ("4.3.1", 30), ("4.0", 25), ("3.9-IV0", 21), ("3.3-IV3", 7)])
def test_releases_have_levels(text: str, level: int) -> None:
    assert release_level(text) == level


def test_an_unknown_release_or_feature_is_told_in_words() -> None:
    with pytest.raises(OttlaError, match=r"Unknown metadata.version '9\.9'"):
        release_level("9.9")
    with pytest.raises(OttlaError, match=r"Unsupported feature: speed\.version"):
        new_cluster_levels(30, {"speed.version": 1})
    with pytest.raises(OttlaError, match=r"depends on metadata\.version level 23"):
        new_cluster_levels(22, {"eligible.leader.replicas.version": 1})


def test_older_releases_have_fewer_features() -> None:
    assert new_cluster_levels(21, {}) == {"metadata.version": 21}
    assert new_cluster_levels(25, {}) == {"metadata.version": 25, "group.version": 1, "transaction.version": 2}
    assert set(new_cluster_levels(30, {})) < set(SUPPORTED)
