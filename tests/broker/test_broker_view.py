"""Which brokers and leaders a client sees, by the listener that it came in by."""

from random import Random
from unittest.mock import Mock

import pytest

from ottla.broker.handlers.cluster import describe_cluster
from ottla.broker.handlers.metadata import CLUSTER_OPERATIONS
from ottla.broker.metadata.broker_view import BrokerView
from ottla.kernel.error import ErrorCode
from ottla.wire.api.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.wire.api.broker_registration import Listener
from ottla.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.controller.fleet import Fleet
from tests.controller.scene import directory

INSIDE, OUTSIDE = "INSIDE", "OUTSIDE"


@pytest.fixture
def fleet() -> Fleet:
    """Three brokers with two directories each; the third has no listener for clients from outside."""
    made = Fleet(0, directories=2)
    for broker_id, names in ((1, (INSIDE, OUTSIDE)), (2, (INSIDE, OUTSIDE)), (3, (INSIDE,))):
        listeners = [
            Listener(name=name, host=f"b{broker_id}", port=9000 + port, security_protocol=0)
            for port, name in enumerate(names)
        ]
        made.register(broker_id, listeners=listeners)
        made.beat(broker_id)
    made.topic("t", [3, 1, 2], [1, 2, 3])
    made.topic("alone", [2], [3])
    return made


def view(fleet: Fleet, listener: str) -> BrokerView:
    return BrokerView(fleet.image.brokers, listener)


def test_a_broker_has_its_address_at_the_clients_listener(fleet: Fleet) -> None:
    assert [each[:3] for each in view(fleet, INSIDE).alive] == [(n, f"b{n}", 9000) for n in (1, 2, 3)]
    assert [each[:3] for each in view(fleet, OUTSIDE).alive] == [(1, "b1", 9001), (2, "b2", 9001)]
    assert view(fleet, OUTSIDE).alive_node(3) is None


def test_a_leader_without_the_clients_listener_is_named_so_to_those_who_know_the_code(fleet: Fleet) -> None:
    led_by_3, led_by_1 = fleet.partition("t"), fleet.partition("t", 1)
    assert view(fleet, INSIDE).leader(led_by_3, names_listener=True) == (3, ErrorCode.NONE)
    outside = view(fleet, OUTSIDE)
    assert outside.leader(led_by_1, names_listener=True) == (1, ErrorCode.NONE)
    assert outside.leader(led_by_3, names_listener=True) == (-1, ErrorCode.LISTENER_NOT_FOUND)
    assert outside.leader(led_by_3, names_listener=False) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)


def test_a_partition_without_a_leader_says_so(fleet: Fleet) -> None:
    fleet.silence(2)
    led_by_none = fleet.partition("alone")
    assert view(fleet, INSIDE).leader(led_by_none, names_listener=True) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)


def test_replicas_are_offline_that_a_client_cannot_reach(fleet: Fleet) -> None:
    inside, outside = view(fleet, INSIDE), view(fleet, OUTSIDE)
    assert inside.all_well and not outside.all_well
    partitions = [fleet.partition(topic, number) for topic in ("t", "alone") for number in range(2)]
    assert [inside.offline(fleet.image, each) for each in partitions] == [[], [], [], []]
    assert [outside.offline(fleet.image, each) for each in partitions] == [[3], [3], [], [3]]


def test_a_fenced_broker_is_not_shown_and_its_replicas_are_offline(fleet: Fleet) -> None:
    fleet.silence(2)
    inside = view(fleet, INSIDE)
    assert [each.node_id for each in inside.alive] == [1, 3]
    assert not inside.all_well
    assert inside.offline(fleet.image, fleet.partition("t")) == [2]
    assert inside.offline(fleet.image, fleet.partition("alone")) == [2]
    assert {inside.any_alive_id(Random(seed)) for seed in range(20)} == {1, 3}


def test_a_replica_in_a_failed_directory_is_offline(fleet: Fleet) -> None:
    topic = RequestTopicData(
        topic_id=fleet.image.topics["t"].topic_id, partitions=[RequestPartitionData(partition_index=0)]
    )
    fleet.ask(
        AssignReplicasToDirsRequest(
            broker_id=1,
            broker_epoch=fleet.image.brokers[1].epoch,
            directories=[RequestDirectoryData(id=directory(11), topics=[topic])],
        )
    )
    assert view(fleet, INSIDE).offline(fleet.image, fleet.partition("t")) == []
    fleet.beat(1, offline_log_dirs=[directory(11)])
    inside = view(fleet, INSIDE)
    assert inside.all_well, "the broker itself is alive"
    assert inside.offline(fleet.image, fleet.partition("t")) == [1]
    assert inside.offline(fleet.image, fleet.partition("t", 1)) == [], "it may lie in the other directory"


def test_no_broker_stands_for_the_controller_when_all_are_fenced(fleet: Fleet) -> None:
    fleet.silence(1, 2, 3)
    assert view(fleet, INSIDE).any_alive_id(Random(1)) == -1


def described(fleet: Fleet, listener: str, *, fenced: bool, operations: bool = False) -> DescribeClusterResponse:
    node = Mock(brokers_at=lambda name: view(fleet, name), cluster_id="c", rng=Random(1))
    call = Mock(node=node, connection=Mock(listener_name=listener))
    return describe_cluster(
        call,
        DescribeClusterRequest(include_fenced_brokers=fenced, include_cluster_authorized_operations=operations),
    )


def test_fenced_brokers_are_described_when_they_are_asked_for(fleet: Fleet) -> None:
    fleet.silence(2)
    found = described(fleet, INSIDE, fenced=False)
    assert [(each.broker_id, each.is_fenced) for each in found.brokers] == [(1, False), (3, False)]
    assert found.controller_id in (1, 3)
    found = described(fleet, INSIDE, fenced=True)
    assert [(each.broker_id, each.is_fenced) for each in found.brokers] == [(1, False), (2, True), (3, False)]
    assert (found.endpoint_type, found.cluster_id, found.cluster_authorized_operations) == (1, "c", -(1 << 31))
    assert described(fleet, INSIDE, fenced=True, operations=True).cluster_authorized_operations == CLUSTER_OPERATIONS
    fleet.silence(1, 3)
    assert (described(fleet, INSIDE, fenced=False).brokers, described(fleet, INSIDE, fenced=True).controller_id) == (
        [],
        -1,
    )
