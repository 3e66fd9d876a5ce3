"""Who leads when brokers come and go, by request and by the check of all partitions."""

from ottla.kernel.error import ErrorCode
from ottla.wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest
from tests.controller.fleet import Fleet

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
    for index in range(1200):
        fleet.alter("flights", [2, 1], index=index)
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
