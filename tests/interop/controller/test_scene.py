"""Scenes: each step is asked of both controllers, and compared there; what is asserted here says that it happened."""

from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.metadata.feature import SUPPORTED
from ottla.wire.api.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.api.broker_registration import Feature
from ottla.wire.api.controller_registration import ControllerRegistrationRequest
from ottla.wire.api.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.interop.controller.fleet import Fleet

PREFERRED, UNCLEAN = 0, 1


def test_brokers_register_and_live(fleet: Fleet) -> None:
    fleet.start(1)
    assert fleet.register(1) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert fleet.register(1, cluster_id="another") is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert fleet.register(2, log_dirs=[]) is ErrorCode.INVALID_REGISTRATION
    assert fleet.register(2, log_dirs=[Uuid(bytes(15) + b"\x07")]) is ErrorCode.INVALID_REGISTRATION
    assert fleet.register(2, log_dirs=fleet.directories(2) * 2) is ErrorCode.INVALID_REGISTRATION
    assert fleet.register(2, log_dirs=fleet.directories(1)) is ErrorCode.INVALID_REGISTRATION
    assert fleet.register(2, is_migrating_zk_broker=True) is ErrorCode.BROKER_ID_NOT_REGISTERED
    low = [Feature(name=name, min_supported_version=0, max_supported_version=0) for name in SUPPORTED]
    assert fleet.register(2, features=low) is ErrorCode.UNSUPPORTED_VERSION
    assert fleet.register(2, features=[]) in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGISTRATION)
    assert fleet.beat(2) is ErrorCode.STALE_BROKER_EPOCH
    assert fleet.beat(1, broker_epoch=0) is ErrorCode.STALE_BROKER_EPOCH
    fleet.register(2)
    assert fleet.beat(2, offset=0).is_fenced
    assert fleet.beat(2, want_fence=True).is_caught_up
    assert not fleet.beat(2).is_fenced
    fleet.incarnations[fleet.broker(2)] += 1
    fleet.register(3, rack="north")
    fleet.register(3, again=True, rack="south")
    assert fleet.beat(3, offset=fleet.duel.image.brokers[fleet.broker(3)].epoch).is_fenced
    assert not fleet.beat(3).is_fenced
    assert fleet.beat(3, want_fence=True).is_fenced


def test_a_silent_broker_is_fenced(fleet: Fleet) -> None:
    fleet.start(1, 2, 3)
    fleet.create("flights", [1, 2, 3], [2, 3, 1], [1, 3, 2], min_insync_replicas="2")
    fleet.create("trains", [1])
    fleet.die(1)
    fleet.await_fenced(1)
    assert [fleet.partition("flights", index).leader - fleet.first for index in range(3)] == [2, 2, 3]
    assert fleet.partition("trains").leader == -1
    fleet.start(1)
    assert fleet.partition("trains").leader == fleet.broker(1)
    fleet.tend()
    fleet.alter("flights", [2, 3, 1])
    fleet.die(1)
    fleet.await_fenced(1)
    fleet.start(1, clean=False)


def test_everyone_is_silent_and_comes_back(fleet: Fleet) -> None:
    fleet.start(1, 2, 3)
    fleet.create("flights", [1, 2, 3], min_insync_replicas="2")
    fleet.create("trains", [1, 2, 3])
    for number in (3, 2, 1):
        fleet.die(number)
        fleet.await_fenced(number)
    assert fleet.partition("flights").isr == ()
    fleet.start(3)
    fleet.start(1, clean=False)
    fleet.start(2, clean=False)
    for topic in ("flights", "trains"):
        assert fleet.partition(topic).leader > 0


def test_an_isr_changes(fleet: Fleet) -> None:
    fleet.start(1, 2, 3, 4)
    fleet.create("flights", [1, 2, 3], min_insync_replicas="2")
    fleet.alter("flights", [1, 2])
    fleet.alter("flights", [1])
    assert len(fleet.partition("flights").eligible_leader_replicas) == 1
    fleet.alter("flights", [1, 3], version=2)
    fleet.alter("flights", [1, 2, 3])
    for version in (2, 3):
        for isr in ([2, 3], [1, 1], [1, 4], [1, 9], []):
            fleet.alter("flights", isr, version=version)
    fleet.tend()
    for name, value in (("leader_epoch", -1), ("leader_epoch", 7), ("partition_epoch", 0), ("partition_epoch", 99)):
        fleet.alter("flights", [1, 2], **{name: value})
    fleet.alter("flights", [1, 2], asks=fleet.broker(2))
    fleet.alter("flights", [1, 2], partition_index=9)
    fleet.alter("flights", [1], leader_recovery_state=1)
    fleet.alter("flights", [1, 2], leader_recovery_state=1)
    fleet.beat(3, want_fence=True)
    answer = fleet.alter("flights", [1, 2, 3]).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_broker_stops(fleet: Fleet) -> None:
    fleet.start(1, 2, 3)
    fleet.create("flights", [1, 2, 3], [2, 1, 3])
    assert not fleet.beat(1, want_shut_down=True).should_shut_down
    moved = fleet.duel.image.offset
    fleet.alter("flights", [2, 3, 1])
    fleet.beat(2, offset=moved - 1)
    fleet.beat(3)
    # The brokers of other tests count as well, but those are fenced by now or have read everything.
    assert not fleet.beat(1, want_shut_down=True).should_shut_down
    fleet.beat(2)
    while not (answer := fleet.beat(1, want_shut_down=True)).should_shut_down:
        fleet.tend()
    assert answer.is_fenced
    assert fleet.beat(1, want_shut_down=True).should_shut_down
    fleet.die(1)
    fleet.await_fenced(1)
    fleet.start(1)
    fleet.tend()
    assert fleet.beat(3, want_shut_down=True).should_shut_down
    assert fleet.beat(2, want_shut_down=True, want_fence=True).should_shut_down


def test_leaders_are_elected(fleet: Fleet) -> None:
    fleet.start(1, 2)
    fleet.create("flights", [1, 2])
    fleet.create("trains", [1, 2], unclean_leader_election_enable="true")
    for kind in (PREFERRED, UNCLEAN):
        fleet.elect("flights", kind)
    fleet.elect("flights", PREFERRED, 5)
    fleet.elect("ships", PREFERRED)
    fleet.beat(2, want_fence=True)
    fleet.beat(1, want_fence=True)
    fleet.elect("flights", UNCLEAN)
    fleet.beat(2)
    assert [fleet.partition(topic).leader for topic in ("flights", "trains")] == [-1, fleet.broker(2)]
    fleet.elect("flights", PREFERRED)
    fleet.elect("flights", UNCLEAN)
    assert fleet.partition("flights").leader_recovery_state == 1
    fleet.beat(1)
    fleet.alter("flights", [2, 1])
    fleet.alter("flights", [2])
    fleet.alter("flights", [2, 1])
    fleet.elect("flights", PREFERRED)
    assert fleet.partition("flights").leader == fleet.broker(1)
    fleet.elect("flights", 7)


def test_partitions_move_and_are_called_back(fleet: Fleet) -> None:
    fleet.start(1, 2, 3, 4, 5, 6)
    fleet.create("flights", [1, 2, 3])
    fleet.move("flights", [3, 4, 5])
    fleet.duel.ask(ListPartitionReassignmentsRequest(topics=None))
    fleet.alter("flights", [1, 2, 3, 4])
    fleet.alter("flights", [1, 2, 3, 4, 5])
    assert fleet.partition("flights").leader == fleet.broker(3)
    fleet.move("flights", [3, 4, 1])
    fleet.alter("flights", [3, 1])
    fleet.tend()
    fleet.move("flights", [4, 5, 6])
    fleet.move("flights", [4, 5, 1])
    fleet.move("flights", None)
    fleet.move("flights", None)
    fleet.move("flights", [1, 2], allow_replication_factor_change=False)
    for replicas in ([], [1, 1], [99]):
        fleet.move("flights", replicas)
    fleet.move("flights", [2])
    fleet.move("ships", [2])
    fleet.move("flights", [2], index=3)
    fleet.tend()
    fleet.alter("flights", [3, 1, 2])
    fleet.move("flights", [5, 6])
    fleet.alter("flights", [2, 5])
    fleet.beat(2, want_fence=True)
    fleet.move("flights", None)
    fleet.configure("flights", "unclean.leader.election.enable", "true")
    fleet.move("flights", None)


def test_directories_fail_and_are_cordoned(fleet: Fleet) -> None:
    fleet.start(1, 2)
    fleet.create("flights", [1, 2], [1, 2], [1, 2])
    first, second = fleet.directories(1)
    fleet.assign(1, first, "flights", 0, 2)
    fleet.assign(1, second, "flights", 1)
    fleet.assign(1, first, "flights", 9)
    fleet.assign(2, fleet.directories(2)[0], "flights", 0, 1, 2)
    fleet.beat(1, offline_log_dirs=[first])
    assert fleet.partition("flights", 2).leader == fleet.broker(2)
    fleet.beat(1, offline_log_dirs=[first])
    fleet.elect("flights", UNCLEAN, 2)
    fleet.elect("flights", PREFERRED, 0)
    fleet.assign(1, second, "flights", 0)
    fleet.assign(1, first, "flights", 1)
    fleet.assign(1, Uuid(bytes(15) + b"\x02"), "flights", 2)
    fleet.beat(2, cordoned_log_dirs=fleet.directories(2))
    fleet.beat(2, cordoned_log_dirs=fleet.directories(2))
    fleet.beat(2, cordoned_log_dirs=[])
    fleet.beat(1, want_fence=True)
    fleet.beat(2, offline_log_dirs=fleet.directories(2)[1:])


def test_topics_come_and_go(fleet: Fleet) -> None:
    fleet.start(1, 2, 3)
    fleet.register(4)
    fleet.create("flights", [1, 4], [2, 3])
    fleet.create("flights", [1, 2])
    wrong: list[list[list[int]]] = [[[4]], [[1, 2], [3]], [[1, 1]], [[99]], [[]]]
    for replicas in wrong:
        fleet.create("trains", *replicas)
    for count, ids in ((3, [[1, 2]]), (2, [[1, 2]]), (4, [[1, 2]]), (4, [[4, 3]]), (5, [[4, 9]]), (5, [[1]])):
        added = [CreatePartitionsAssignment(broker_ids=[fleet.broker(each) for each in numbers]) for numbers in ids]
        topic = CreatePartitionsTopic(name=fleet.name("flights"), count=count, assignments=added)
        fleet.duel.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000))
    topic_id = fleet.duel.image.topics[fleet.name("flights")].topic_id
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=10_000)
    fleet.duel.ask(gone)
    fleet.duel.ask(gone)


def update(fleet: Fleet, feature: str, level: int, kind: int = 1) -> Any:
    wanted = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
    return fleet.duel.ask(UpdateFeaturesRequest(feature_updates=[wanted], timeout_ms=10_000))


def test_features_need_every_broker(fleet: Fleet) -> None:
    fleet.start(1)
    upgrade, safe = 1, 2
    for level, kind in ((9, upgrade), (0, upgrade), (-1, safe), (1, 0), (0, safe)):
        update(fleet, "streams.version", level, kind)
    old = [
        Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in SUPPORTED.items()
        if name != "streams.version"
    ]
    fleet.register(2, features=old)
    update(fleet, "streams.version", 1)
    update(fleet, "nonsense.version", 1)
    fleet.duel.ask(UnregisterBrokerRequest(broker_id=fleet.broker(2)))
    update(fleet, "streams.version", 1)
    assert fleet.duel.image.features["streams.version"] == 1


def test_ids_settings_and_brokers_that_go(fleet: Fleet) -> None:
    fleet.start(1, 2, 3)
    epoch = fleet.duel.image.brokers[fleet.broker(1)].epoch
    for broker_epoch in (epoch, epoch, epoch - 1):
        request = AllocateProducerIdsRequest(broker_id=fleet.broker(1), broker_epoch=broker_epoch)
        fleet.duel.ask(request)
    fleet.duel.ask(ControllerRegistrationRequest(controller_id=fleet.first, incarnation_id=Uuid(bytes(15) + b"x")))
    fleet.create("flights", [1, 2, 3], min_insync_replicas="2")
    fleet.create("trains", [2, 3], [3, 2])
    fleet.alter("flights", [1])
    fleet.configure("flights", "min.insync.replicas", "1")
    assert fleet.partition("flights").eligible_leader_replicas == ()
    fleet.configure("flights", "min.insync.replicas", "3")
    fleet.beat(3, want_fence=True)
    fleet.duel.ask(UnregisterBrokerRequest(broker_id=fleet.broker(2)))
    fleet.duel.ask(UnregisterBrokerRequest(broker_id=fleet.broker(3)))
    fleet.duel.ask(UnregisterBrokerRequest(broker_id=fleet.broker(99)))
    fleet.die(2)
    fleet.die(3)
