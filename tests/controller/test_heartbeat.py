"""Brokers register, live, fall silent, stop and come back."""

from typing import Any

import pytest

from ottla.controller import controller
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.api.controller_registration import ControllerRegistrationRequest
from ottla.wire.record.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord, RegisterBrokerRecord
from tests.controller.fleet import Fleet
from tests.controller.scene import CLUSTER_ID, directory, registration


def test_a_brokers_epoch_is_the_offset_of_what_its_registration_wrote_first() -> None:
    fleet = Fleet(1)
    fleet.silence(1)
    offset = len(fleet.log)
    assert fleet.register(1) == offset
    assert fleet.image.brokers[1].epoch == offset


def test_another_cluster_is_refused() -> None:
    request = registration(4)
    request.cluster_id = "another"
    assert Fleet(1).refused(request) is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_the_broker_in_the_controller_s_own_process_does_not_wait_for_itself() -> None:
    fleet = Fleet(2, node_id="1")
    fleet.controller.resign()
    fleet.controller.activate(fleet.image, fleet.now_ms)
    fleet.start(1, clean=False)
    assert fleet.refused(registration(2, incarnation=9)) == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_an_id_has_one_broker_while_it_lives() -> None:
    fleet = Fleet(2)
    assert fleet.refused(registration(1, incarnation=9)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    fleet.wait(9_000)
    assert fleet.refused(registration(1, incarnation=9)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    fleet.wait(1)
    assert fleet.image.brokers[1].fenced
    fleet.ask(registration(1, incarnation=9))
    assert fleet.image.brokers[1].incarnation_id == registration(1, incarnation=9).incarnation_id


def test_a_broker_that_registers_again_keeps_its_epoch_and_its_state() -> None:
    fleet = Fleet(1)
    before = fleet.image.brokers[1]
    request = registration(1, incarnation=1)
    request.rack = "north"
    assert fleet.ask(request).broker_epoch == before.epoch
    assert fleet.image.brokers[1] == before._replace(rack="north")


def test_a_directory_belongs_to_one_broker() -> None:
    request = registration(2)
    request.log_dirs = [directory(10)]
    assert Fleet(1).refused(request) is ErrorCode.INVALID_REGISTRATION


def test_a_broker_must_be_able_to_read_the_quorums_version() -> None:
    request = registration(2)
    for feature in request.features:
        if feature.name == "kraft.version":
            feature.max_supported_version = 0
    assert Fleet(1).refused(request) is ErrorCode.UNSUPPORTED_VERSION


def test_a_broker_is_unfenced_when_it_has_read_its_own_registration() -> None:
    fleet = Fleet(1)
    fleet.topic("flights", [1])
    fleet.silence(1)
    epoch = fleet.register(1, clean=False)
    offset = fleet.image.offset
    assert offset > epoch, "cleaning up after the last incarnation comes before the registration"
    early = fleet.beat(1, offset=offset - 1)
    assert (early.is_caught_up, early.is_fenced) == (False, True)
    assert fleet.image.brokers[1].fenced
    caught_up = fleet.beat(1, offset=offset)
    assert (caught_up.is_caught_up, caught_up.is_fenced) == (True, False)
    assert not fleet.image.brokers[1].fenced


def test_a_broker_that_wants_to_be_fenced_stays_or_becomes_so() -> None:
    fleet = Fleet(2)
    assert fleet.beat(2, want_fence=True).is_fenced
    assert fleet.image.brokers[2].fenced
    written = len(fleet.log)
    assert fleet.beat(2, want_fence=True).is_fenced
    assert len(fleet.log) == written


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 0), (7, 0)])
def test_an_old_incarnation_is_told(broker_id: int, epoch: int) -> None:
    fleet = Fleet(1)
    request = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch)
    assert fleet.refused(request) is ErrorCode.STALE_BROKER_EPOCH


def test_silent_brokers_are_fenced_one_at_a_time() -> None:
    fleet = Fleet(3)
    fleet.now_ms += 9_000
    assert fleet.controller.deadline_ms() == fleet.now_ms + 1
    assert fleet.controller.time_passed(fleet.image, fleet.now_ms).records == []
    fleet.now_ms += 1
    for count in (1, 2, 3):
        records = fleet.controller.time_passed(fleet.image, fleet.now_ms).records
        fleet.append(records)
        assert sum(broker.fenced for broker in fleet.image.brokers.values()) == count
    assert fleet.controller.time_passed(fleet.image, fleet.now_ms).records == []


def test_a_heartbeat_keeps_the_session() -> None:
    fleet = Fleet(2)
    for _ in range(4):
        fleet.wait(6_000)
        fleet.beat(1)
    assert [broker.fenced for broker in fleet.image.brokers.values()] == [False, True]


def test_a_fence_that_could_not_be_written_is_written_later() -> None:
    fleet = Fleet(1)
    fleet.now_ms += 9_001
    assert fleet.controller.time_passed(fleet.image, fleet.now_ms).records
    assert not fleet.image.brokers[1].fenced, "the records were lost on their way"
    fleet.wait(9_001)
    assert fleet.image.brokers[1].fenced


def test_a_new_controller_gives_everyone_a_session() -> None:
    fleet = Fleet(2)
    fleet.now_ms += 8_999
    fleet.controller.resign()
    fleet.controller.activate(fleet.image, fleet.now_ms)
    fleet.wait(9_000)
    assert not any(broker.fenced for broker in fleet.image.brokers.values())
    fleet.wait(1)
    assert all(broker.fenced for broker in fleet.image.brokers.values())


def test_a_silent_leader_is_replaced_by_one_in_sync() -> None:
    fleet = Fleet(3)
    fleet.topic("flights", [1, 2, 3])
    fleet.silence(1)
    partition = fleet.partition("flights")
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 1, (2, 3))
    assert fleet.log[-1] == BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=fleet.image.brokers[1].epoch, fenced=1
    )
    fleet.beat(1)
    # 1 fences and -1 ends it; Apache's controllers refuse any other number.
    assert [each.fenced for each in fleet.log if isinstance(each, BrokerRegistrationChangeRecord)][-1] == -1
    assert not fleet.image.brokers[1].fenced


def test_a_broker_that_leads_nothing_may_stop_at_once() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2])
    answer = fleet.beat(2, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (True, True)
    assert fleet.partition("flights").isr == (1,)


def test_a_broker_that_has_stopped_may_start_again_at_once() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2])
    assert fleet.beat(2, want_shut_down=True).should_shut_down
    fleet.start(2)
    assert fleet.beat(2, want_shut_down=True).should_shut_down
    written = len(fleet.log)
    for _ in range(3):
        fleet.wait(6_000)
        fleet.beat(1)
    assert len(fleet.log) == written, "it is fenced once"


def test_a_controlled_shutdown_waits_until_every_active_broker_knows_the_new_leaders() -> None:
    fleet = Fleet(3)
    fleet.topic("flights", [1, 2, 3])
    first = fleet.beat(1, want_shut_down=True)
    assert (first.should_shut_down, first.is_fenced) == (False, False)
    assert fleet.image.brokers[1].in_controlled_shutdown
    assert (fleet.partition("flights").leader, fleet.partition("flights").isr) == (2, (2, 3))
    moved = fleet.image.offset
    fleet.beat(2, offset=moved)
    fleet.beat(3, offset=moved - 1)
    assert not fleet.beat(1, want_shut_down=True).should_shut_down
    fleet.beat(3, offset=moved)
    last = fleet.beat(1, want_shut_down=True)
    assert (last.should_shut_down, last.is_fenced) == (True, True)
    assert fleet.image.brokers[1].fenced


def test_what_is_written_during_a_shutdown_is_not_waited_for() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2])
    fleet.beat(1, want_shut_down=True)
    moved = fleet.image.offset
    fleet.topic("trains", [2])
    assert fleet.image.offset > moved
    fleet.beat(2, offset=moved - 1)
    assert not fleet.beat(1, want_shut_down=True).should_shut_down
    fleet.beat(2, offset=moved)
    assert fleet.beat(1, want_shut_down=True).should_shut_down


def test_a_registration_whose_records_were_lost_says_nothing_of_the_life_before() -> None:
    fleet = Fleet(1)
    active, broker = fleet.controller._active, fleet.image.brokers[1]
    assert active is not None
    active.registered(1, broker.epoch + 100, fleet.image.offset + 100)
    assert active.state(broker).epoch == broker.epoch
    assert active.state(broker).registered_at <= fleet.image.offset


def test_the_last_broker_leads_until_the_end_and_is_not_waited_for() -> None:
    fleet = Fleet(1)
    fleet.topic("flights", [1])
    assert not fleet.beat(1, want_shut_down=True).should_shut_down
    partition = fleet.partition("flights")
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (-1, (), (1,))
    assert fleet.beat(1, want_shut_down=True).should_shut_down


def test_a_broker_that_stops_gets_no_leaders_and_no_place_in_an_isr() -> None:
    fleet = Fleet(3)
    fleet.topic("flights", [1, 2, 3])
    fleet.beat(1, want_shut_down=True)
    assert fleet.alter("flights", [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    fleet.silence(2, 3)
    assert fleet.partition("flights").leader == -1


def test_a_shutdown_whose_records_were_lost_begins_again() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2])
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=fleet.image.brokers[1].epoch,
        current_metadata_offset=fleet.image.offset,
        want_shut_down=True,
    )
    assert fleet.controller.handle(fleet.image, request, now_ms=fleet.now_ms).records
    fleet.topic("trains", [2])
    fleet.beat(2)
    assert not fleet.beat(1, want_shut_down=True).should_shut_down
    assert fleet.partition("flights").leader == 2
    assert not fleet.beat(1, want_shut_down=True).should_shut_down, "broker 2 has not read it yet"


def test_after_a_failover_a_shutdown_goes_on() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2])
    fleet.beat(1, want_shut_down=True)
    fleet.controller.resign()
    fleet.controller.activate(fleet.image, fleet.now_ms)
    assert fleet.beat(1, want_shut_down=True).should_shut_down


def test_an_unclean_stop_leaves_the_isr_and_the_eligible_leaders() -> None:
    fleet = Fleet(3)
    fleet.topic("flights", [1, 2, 3], configs={"min.insync.replicas": "3"})
    fleet.silence(3)
    assert fleet.partition("flights").eligible_leader_replicas == (3,)
    fleet.register(3, clean=False)
    assert fleet.partition("flights").eligible_leader_replicas == ()
    fleet.silence(2)
    assert fleet.partition("flights").eligible_leader_replicas == (2,)
    fleet.register(2, clean=True)
    assert fleet.partition("flights").eligible_leader_replicas == (2,)


def test_a_registration_that_cannot_name_its_last_epoch_was_no_clean_stop() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2], configs={"min.insync.replicas": "2"})
    fleet.silence(2)
    fleet.register(2, version=2)
    assert fleet.partition("flights").eligible_leader_replicas == ()


def test_the_last_leader_comes_back_after_a_crash_and_recovers() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2])
    fleet.silence(2)
    fleet.silence(1)
    partition = fleet.partition("flights")
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (-1, (), (1,))
    fleet.register(1, clean=False)
    partition = fleet.partition("flights")
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), (1,))
    assert not fleet.beat(1).is_fenced
    partition = fleet.partition("flights")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), 1)
    assert partition.last_known_elr == ()


def test_before_kip_966_the_last_in_sync_replica_stays() -> None:
    fleet = Fleet(2, features={"metadata.version": 21})
    fleet.topic("flights", [1, 2])
    fleet.silence(2)
    fleet.silence(1)
    assert (fleet.partition("flights").leader, fleet.partition("flights").isr) == (-1, (1,))
    fleet.start(2)
    assert fleet.partition("flights").leader == -1
    fleet.start(1, clean=False)
    assert (fleet.partition("flights").leader, fleet.partition("flights").isr) == (1, (1,))


def test_a_failed_directory_takes_its_replicas_out_of_every_isr() -> None:
    fleet = Fleet(2, directories=2)
    topic_id = fleet.topic("flights", [1, 2], [1, 2])
    for index, number in enumerate((10, 11)):
        where = [directory(number), directory(20)]
        fleet.append([PartitionChangeRecord(topic_id=topic_id, partition_id=index, directories=where)])
    fleet.beat(1, offline_log_dirs=[directory(10)])
    assert (fleet.partition("flights").leader, fleet.partition("flights").isr) == (2, (2,))
    assert (fleet.partition("flights", 1).leader, fleet.partition("flights", 1).isr) == (1, (1, 2))
    assert fleet.image.brokers[1].log_dirs == (directory(11),)
    written = len(fleet.log)
    fleet.beat(1, offline_log_dirs=[directory(10)])
    assert len(fleet.log) == written


def test_a_broker_that_comes_back_without_a_directory_leads_nothing_in_it() -> None:
    fleet = Fleet(1, directories=2)
    topic_id = fleet.topic("flights", [1], [1])
    for index, number in enumerate((10, 11)):
        change = PartitionChangeRecord(topic_id=topic_id, partition_id=index, directories=[directory(number)])
        fleet.append([change])
    fleet.silence(1)
    fleet.register(1, log_dirs=[directory(11)])
    fleet.beat(1)
    assert [fleet.partition("flights", index).leader for index in (0, 1)] == [-1, 1]


def test_cordoned_directories_are_noted_once() -> None:
    fleet = Fleet(1, directories=2)
    fleet.beat(1, cordoned_log_dirs=[directory(10)])
    assert fleet.image.brokers[1].cordoned_log_dirs == (directory(10),)
    written = len(fleet.log)
    fleet.beat(1, cordoned_log_dirs=[directory(10)])
    fleet.beat(1)
    assert len(fleet.log) == written


def test_controllers_register_from_a_level_on() -> None:
    request = ControllerRegistrationRequest(controller_id=7, incarnation_id=Uuid(bytes(15) + b"\x07"))
    old = Fleet(0, features={"metadata.version": 14})
    assert old.refused(request) is ErrorCode.UNSUPPORTED_VERSION
    fleet = Fleet(0)
    fleet.ask(request)
    assert fleet.image.controllers[7].incarnation_id == request.incarnation_id


def test_a_registration_stands_behind_what_it_cleans_up() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2])
    fleet.silence(1)
    fleet.topic("trains", [2, 1])
    fleet.register(1, clean=False)
    assert isinstance(fleet.log[-1], RegisterBrokerRecord)
    assert fleet.image.brokers[1].fenced
    assert registration(1).cluster_id == CLUSTER_ID


def _steps(fleet: Fleet, ms: int) -> list[list[Any]]:
    """What the controller writes in each of its steps while time passes."""
    steps = []
    end_ms = fleet.now_ms + ms
    while (due := fleet.controller.deadline_ms()) is not None and due <= end_ms:
        fleet.now_ms = max(due, fleet.now_ms)
        steps.append(fleet.controller.time_passed(fleet.image, fleet.now_ms).records)
        fleet.append(steps[-1])
    return [each for each in steps if each]


@pytest.mark.parametrize("elr", [False, True])
def test_a_silent_broker_in_many_in_sync_sets_leaves_them_in_steps_and_is_fenced_in_the_last(
    elr: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "FENCED_AT_ONCE", 4)
    features = None if elr else {"metadata.version": 24}
    fleet = Fleet(2, features=features)
    assert fleet.image.has_elr is elr
    # In five of the sets the broker is the last one, and stays in them where there is no ELR.
    fleet.topic("many", *[[1, 2]] * 9)
    fleet.topic("own", *[[1]] * 5)
    fleet.wait(6_000)
    fleet.beat(2)
    steps = _steps(fleet, 5_000)
    changes = [[each for each in step if isinstance(each, PartitionChangeRecord)] for step in steps]
    assert [len(each) for each in changes] == [4, 4, 4, 2]
    assert [any(isinstance(each, BrokerRegistrationChangeRecord) for each in step) for step in steps] == [
        False,
        False,
        False,
        True,
    ]
    assert isinstance(steps[-1][-1], BrokerRegistrationChangeRecord)
    assert fleet.image.brokers[1].fenced
    assert [each.leader for each in fleet.image.topics["many"].partitions] == [2] * 9
    assert [each.leader for each in fleet.image.topics["own"].partitions] == [-1] * 5


def test_a_broker_that_is_heard_of_while_it_leaves_its_in_sync_sets_is_not_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller, "FENCED_AT_ONCE", 4)
    fleet = Fleet(2)
    fleet.topic("many", *[[1, 2]] * 9)
    fleet.wait(6_000)
    fleet.beat(2)
    fleet.now_ms = fleet.controller.deadline_ms() or 0
    fleet.append(fleet.controller.time_passed(fleet.image, fleet.now_ms).records)
    assert not fleet.beat(1).is_fenced
    assert _steps(fleet, 3_000) == []
    assert [each.leader for each in fleet.image.topics["many"].partitions] == [2] * 4 + [1] * 5


def test_the_mark_of_an_older_clean_stop_says_nothing_of_the_last_life() -> None:
    fleet = Fleet(2)
    fleet.topic("flights", [1, 2], configs={"min.insync.replicas": "2"})
    stale = fleet.image.brokers[2].epoch
    assert fleet.beat(2, want_shut_down=True).should_shut_down
    fleet.start(2, clean=True)
    fleet.alter("flights", [1, 2])
    fleet.silence(2)
    assert fleet.partition("flights").eligible_leader_replicas == (2,)
    # Its file of a clean stop was written two lives ago: what it did since may be lost.
    fleet.register(2, clean=False, previous_broker_epoch=stale)
    assert fleet.partition("flights").eligible_leader_replicas == ()


def test_a_broker_that_still_leads_is_not_told_to_stop() -> None:
    fleet = Fleet(2)
    topic_id = fleet.topic("flights", [1, 2])
    assert not fleet.beat(1, want_shut_down=True).should_shut_down
    # A record of an older controller, say, made it a leader again meanwhile.
    fleet.append([PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[1, 2], leader=1)])
    fleet.beat(2)
    assert not fleet.beat(1, want_shut_down=True).should_shut_down
    fleet.append([PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[2], leader=2)])
    fleet.beat(2)
    assert fleet.beat(1, want_shut_down=True).should_shut_down
