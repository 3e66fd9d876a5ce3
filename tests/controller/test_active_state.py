"""The controller itself: what it takes, its timers and sessions, and levels of features that change together."""

from typing import Any

import pytest

from ottla.controller.active import BrokerSessions, Periodic
from ottla.controller.decision import Decision
from ottla.controller.election import AT_ONCE
from ottla.kernel.error import ErrorCode
from ottla.metadata.image import NO_LEADER, TOPIC
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.record.metadata import NoOpRecord
from tests.controller.fleet import Fleet
from tests.controller.scene import Cluster
from tests.controller.test_config import OK, SET, change

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def test_a_request_that_no_controller_takes_is_a_mistake_of_the_program() -> None:
    cluster = Cluster()
    with pytest.raises(TypeError, match="the controller does not take str"):
        cluster.controller.handle(cluster.image, "nothing", now_ms=0)


# -- sessions and timers


def test_a_broker_that_is_heard_of_otherwise_keeps_its_session() -> None:
    fleet = Fleet(2)
    timeout_ms = fleet.settings.broker_session_timeout_ms
    fleet.beat(1)
    for _ in range(3):
        fleet.wait(timeout_ms * 2 // 3)
        fleet.controller.note_contact(fleet.image.brokers[1], fleet.now_ms)
    assert (fleet.image.brokers[1].fenced, fleet.image.brokers[2].fenced) == (False, True)
    fleet.controller.resign()
    fleet.controller.note_contact(fleet.image.brokers[1], fleet.now_ms)
    assert fleet.controller.deadline_ms() is None


def test_a_broker_of_an_earlier_process_is_not_heard_of_otherwise() -> None:
    fleet = Fleet(2)
    fleet.controller.resign()
    fleet.controller.activate(fleet.image, fleet.now_ms)
    for _ in range(3):
        fleet.wait(fleet.settings.broker_session_timeout_ms * 2 // 3)
        fleet.controller.note_contact(fleet.image.brokers[1], fleet.now_ms)
        fleet.beat(2)
    assert (fleet.image.brokers[1].fenced, fleet.image.brokers[2].fenced) == (True, False)


def test_a_session_ends_one_millisecond_after_its_timeout() -> None:
    cluster = Cluster()
    broker = cluster.image.brokers[1]
    sessions = BrokerSessions(100)
    assert sessions.deadline_ms() is None and sessions.expire(cluster.image, 10_000) is None
    sessions.touch(1, broker.epoch, 1_000)
    assert sessions.deadline_ms() == 1_101
    assert sessions.is_alive(1, broker.epoch, 1_100) and not sessions.is_alive(1, broker.epoch, 1_101)
    assert not sessions.is_alive(2, broker.epoch, 1_000) and not sessions.is_alive(1, broker.epoch + 1, 1_000)
    assert sessions.expire(cluster.image, 1_100) is None
    assert sessions.expire(cluster.image, 1_101) is broker
    assert not sessions.is_alive(1, broker.epoch, 1_101), "it is not alive until it is heard of"
    assert sessions.deadline_ms() == 1_202, "its fence may have been lost"
    sessions.touch(1, broker.epoch, 1_150)
    assert sessions.is_alive(1, broker.epoch, 1_150) and sessions.deadline_ms() == 1_251
    sessions.end(1, broker.epoch)
    assert sessions.deadline_ms() is None and not sessions.is_alive(1, broker.epoch, 1_150)


def test_a_session_that_ended_is_looked_at_once_more_and_then_forgotten() -> None:
    fleet = Fleet(1)
    sessions = BrokerSessions(100)
    sessions.touch(1, fleet.image.brokers[1].epoch, 0)
    assert sessions.expire(fleet.image, 101) is not None
    assert sessions.expire(fleet.image, 101) is None
    assert sessions.expire(fleet.image, 202) is not None, "the fence was not written"
    fleet.silence(1)
    assert sessions.expire(fleet.image, 500) is None and sessions.deadline_ms() is None


def test_sessions_of_brokers_that_are_gone_or_new_are_passed_over() -> None:
    fleet = Fleet(2)
    sessions = BrokerSessions(100)
    sessions.touch(9, 1, 0)
    sessions.touch(1, fleet.image.brokers[1].epoch - 1, 0)
    sessions.touch(2, fleet.image.brokers[2].epoch, 50)
    assert sessions.deadline_ms() == 101
    assert sessions.expire(fleet.image, 101) is None and sessions.deadline_ms() == 151
    assert sessions.expire(fleet.image, 151) is fleet.image.brokers[2]
    sessions.touch(1, fleet.image.brokers[1].epoch, 151)
    sessions.expire_soon(fleet.image.brokers[2], 151)
    assert sessions.deadline_ms() == 161
    assert sessions.expire(fleet.image, 160) is None
    assert sessions.expire(fleet.image, 161) is fleet.image.brokers[2]


def test_a_task_is_due_an_interval_after_its_last_run_or_soon_if_there_is_more() -> None:
    task = Periodic(1_000, 50)
    assert [task.is_due(now_ms) for now_ms in (1_049, 1_050, 1_051)] == [False, True, True]
    task.done(1_100, soon=False)
    assert not task.is_due(2_099) and task.is_due(2_100)
    task.done(2_100, soon=True)
    assert not task.is_due(2_100) and task.is_due(2_200)
    never = Periodic(0, 50)
    assert never.due_ms is None and not never.is_due(1 << 60)


def test_a_thousand_leaders_are_elected_uncleanly_at_a_time() -> None:
    fleet = Fleet(2, broker_session_timeout_ms="100000000", auto_leader_rebalance_enable="false")
    fleet.topic("trains", *[[1, 2]] * (AT_ONCE + 50))
    fleet.topic("flights", [1, 2])
    fleet.beat(2, want_fence=True)
    fleet.beat(1, want_fence=True)
    fleet.beat(2)
    fleet.set("trains", "unclean.leader.election.enable", "true")
    fleet.now_ms += 300_000
    counts = []
    while (due := fleet.controller.deadline_ms()) is not None and due <= fleet.now_ms + 10:
        fleet.now_ms = max(fleet.now_ms, due)
        decision: Decision = fleet.controller.time_passed(fleet.image, fleet.now_ms)
        fleet.append(decision.records)
        counts.append(len(decision.records))
    assert [count for count in counts if count] == [AT_ONCE, 50]
    assert {partition.leader for partition in fleet.image.topics["trains"].partitions} == {2}
    assert fleet.partition("flights").leader == NO_LEADER


# -- levels of features


def update(
    cluster: Cluster, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> tuple[Any, Decision]:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    decision = cluster.controller.handle(cluster.image, request, version, now_ms=cluster.now_ms)
    return decision.response, decision


@pytest.mark.parametrize(("levels", "code", "level"), [((9, 0), 0, 0), ((0, 9), 95, 1), ((0, 1), 0, 1)])
def test_the_last_update_of_a_feature_counts(levels: tuple[int, ...], code: int, level: int) -> None:
    cluster = Cluster()
    said, decision = update(
        cluster, *(("group.version", each, UPGRADE if each else SAFE) for each in levels), version=1
    )
    assert said.error_code == code
    assert [each.feature for each in said.results] == ([] if code else ["group.version"] * 2)
    cluster.append(decision.records)
    assert cluster.image.features.get("group.version", 0) == level


def test_an_update_that_does_not_count_ends_no_eligibility() -> None:
    fleet, elr = Fleet(3), "eligible.leader.replicas.version"
    fleet.topic("led", [1, 2], configs={"min.insync.replicas": "2"})
    fleet.silence(2)
    assert fleet.partition("led").eligible_leader_replicas == (2,)
    fleet.append(update(fleet, (elr, 0, SAFE))[1].records)
    wanted = update(fleet, (elr, 0, SAFE))[1].records
    assert update(fleet, (elr, 1, UPGRADE), (elr, 0, SAFE))[1].records == wanted


@pytest.mark.parametrize(("version", "results"), [(1, ["group.version", "share.version"]), (2, [])])
def test_each_feature_has_a_result_before_version_2(version: int, results: list[str]) -> None:
    said, decision = update(Cluster(), ("group.version", 0, SAFE), ("share.version", 0, UNSAFE), version=version)
    assert (said.error_code, said.error_message) == (ErrorCode.NONE, None)
    assert [each.feature for each in said.results] == results
    assert [(record.name, record.feature_level) for record in decision.records] == [
        ("group.version", 0),
        ("share.version", 0),
    ]
    assert all(each.error_code == ErrorCode.NONE for each in said.results)


def test_features_that_need_one_another_go_up_together() -> None:
    cluster = Cluster(features={"metadata.version": 22})
    elr = "eligible.leader.replicas.version"
    said, decision = update(cluster, (elr, 1, UPGRADE))
    assert said.error_code == ErrorCode.INVALID_UPDATE_VERSION and decision.records == []
    said, decision = update(cluster, (elr, 1, UPGRADE), ("metadata.version", 23, UPGRADE))
    assert said.error_code == ErrorCode.NONE
    levels = [(record.name, record.feature_level) for record in decision.records if hasattr(record, "feature_level")]
    assert levels == [(elr, 1), ("metadata.version", 23)]
    checked, decision = update(cluster, (elr, 1, UPGRADE), ("metadata.version", 23, UPGRADE), validate_only=True)
    assert (checked.error_code, decision.records, decision.kraft_version) == (ErrorCode.NONE, [], None)


def test_a_replica_that_was_eligible_before_the_feature_was_off_may_have_missed_records() -> None:
    fleet, elr = Fleet(3), "eligible.leader.replicas.version"
    fleet.topic("led", [1, 2], configs={"min.insync.replicas": "2"})
    fleet.topic("left", [2, 3], configs={"min.insync.replicas": "2"})
    fleet.silence(2, 3)
    for level, kind in ((0, SAFE), (1, UPGRADE)):
        fleet.append(update(fleet, (elr, level, kind))[1].records)
        assert fleet.image.has_elr == level
        if not level:
            # From here on broker 1 alone commits what it writes.
            assert change(fleet, TOPIC, "led", ("min.insync.replicas", SET, "1")) == OK
            assert fleet.partition("led").eligible_leader_replicas == (2,)
    assert fleet.partition("left").eligible_leader_replicas == (2, 3), "nothing was written there meanwhile"
    fleet.silence(1)
    fleet.start(2)
    assert fleet.partition("led").leader == NO_LEADER
    assert fleet.partition("left").leader == 2
    fleet.start(1)
    assert fleet.partition("led").leader == 1


def test_the_quorums_version_is_raised_outside_of_the_metadata() -> None:
    cluster = Cluster()
    cluster.controller.kraft_version = 0
    said, decision = update(cluster, ("kraft.version", 1, UPGRADE))
    assert (said.error_code, decision.records, decision.kraft_version) == (ErrorCode.NONE, [NoOpRecord()], 1)
    checked, decision = update(cluster, ("kraft.version", 1, UPGRADE), validate_only=True)
    assert (checked.error_code, decision.records, decision.kraft_version) == (ErrorCode.NONE, [], None)
    cluster.controller.kraft_version = 1
    for kind in (UPGRADE, SAFE):
        said, decision = update(cluster, ("kraft.version", 1, kind))
        assert (said.error_code, decision.kraft_version) == (ErrorCode.NONE, None)
    said, decision = update(cluster, ("kraft.version", 0, SAFE))
    assert said.error_code == ErrorCode.INVALID_UPDATE_VERSION and decision.kraft_version is None


@pytest.mark.parametrize("validate_only", [False, True])
def test_what_the_quorum_does_not_allow_of_kraft_version_is_refused_before_anything_is_done(
    validate_only: bool,
) -> None:
    cluster = Cluster()
    cluster.controller.kraft_version = 0
    cluster.controller.version_refusal = {1: "voter 2 has not reported it yet"}.get
    changes = (("group.version", 0, SAFE), ("kraft.version", 1, UPGRADE))
    said, decision = update(cluster, *changes, validate_only=validate_only)
    assert (decision.records, decision.kraft_version) == ([], None)
    assert said.error_code == ErrorCode.INVALID_UPDATE_VERSION
    why = "Invalid update version 1 for feature kraft.version. voter 2 has not reported it yet"
    assert said.error_message.endswith(f"the following feature had an error: {why}")
