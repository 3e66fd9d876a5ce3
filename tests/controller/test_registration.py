"""What a broker and a controller say of themselves when they register, what of it is refused, and what is kept."""

from typing import Any

import pytest

from ottla.controller.broker import check_broker_epoch
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.metadata.feature import DIRECTORIES_FROM
from ottla.metadata.image import BrokerEndpoint
from ottla.wire.api import broker_registration as broker
from ottla.wire.api import controller_registration as controller
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest
from ottla.wire.record.registration import ControllerEndpoint, ControllerFeature
from tests.controller.fleet import Fleet
from tests.controller.scene import Cluster, directory, registration


def refused(cluster: Cluster, request: Any) -> tuple[ErrorCode, str]:
    before = len(cluster.log)
    with pytest.raises(KafkaError) as raised:
        cluster.ask(request)
    assert len(cluster.log) == before
    return raised.value.code, raised.value.message


def changed(broker_id: int = 9, **fields: Any) -> broker.BrokerRegistrationRequest:
    request = registration(broker_id)
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def test_a_broker_is_kept_as_it_registered() -> None:
    fleet = Fleet(1)
    listeners = [
        broker.Listener(name="A", host="a.example", port=1, security_protocol=0),
        broker.Listener(name="B", host="b.example", port=2, security_protocol=3),
    ]
    features = [*registration().features, broker.Feature(name="x", min_supported_version=0, max_supported_version=7)]
    fleet.ask(changed(listeners=listeners, features=features, rack="r", log_dirs=[directory(90), directory(91)]))
    found = fleet.image.brokers[9]
    assert found.endpoints == (BrokerEndpoint("A", "a.example", 1, 0), BrokerEndpoint("B", "b.example", 2, 3))
    assert found.features[-1] == ("x", 0, 7) and len(found.features) == len(features)
    assert (found.rack, found.log_dirs) == ("r", (directory(90), directory(91)))
    assert found.incarnation_id == registration(9).incarnation_id
    assert (found.fenced, found.in_controlled_shutdown, found.is_migrating_zk_broker) == (True, False, False)


def test_a_controller_is_kept_as_it_registered() -> None:
    fleet = Fleet(1)
    fleet.ask(
        controller.ControllerRegistrationRequest(
            controller_id=8,
            incarnation_id=Uuid(b"i" * 16),
            listeners=[controller.Listener(name="C", host="c.example", port=3, security_protocol=1)],
            features=[controller.Feature(name="x", min_supported_version=1, max_supported_version=7)],
        )
    )
    found = fleet.image.controllers[8]
    assert found.incarnation_id == Uuid(b"i" * 16)
    assert found.end_points == [ControllerEndpoint(name="C", host="c.example", port=3, security_protocol=1)]
    assert found.features == [ControllerFeature(name="x", min_supported_version=1, max_supported_version=7)]


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"log_dirs": []}, "INVALID_REGISTRATION", "No directories specified in request"),
        ({"log_dirs": [Uuid(bytes(15) + b"\x63")]}, "INVALID_REGISTRATION", "Reserved directory ID in request"),
        ({"log_dirs": [directory(90)] * 2}, "INVALID_REGISTRATION", "Duplicate directory ID in request"),
        ({"log_dirs": [directory(90), directory(10)]}, "INVALID_REGISTRATION", "Broker 1 is already registered with"),
        ({"features": []}, "INVALID_REGISTRATION", "Request features do not contain 'metadata.version'"),
        ({"cluster_id": "other"}, "INCONSISTENT_CLUSTER_ID", "Expected cluster ID a-cluster, but got cluster ID other"),
        ({"is_migrating_zk_broker": True}, "BROKER_ID_NOT_REGISTERED", "Controller does not support registering ZK"),
    ],
)
def test_a_registration_that_cannot_be_is_refused_in_kafkas_words(
    fields: dict[str, Any], code: str, words: str
) -> None:
    found, message = refused(Fleet(1), changed(**fields))
    assert (found.name, message[: len(words)]) == (code, words)


def test_the_first_id_that_is_not_reserved_is_a_directorys() -> None:
    fleet = Fleet(1)
    fleet.ask(changed(log_dirs=[Uuid(bytes(15) + b"\x64")]))
    assert fleet.image.brokers[9].log_dirs == (Uuid(bytes(15) + b"\x64"),)


@pytest.mark.parametrize("level", [DIRECTORIES_FROM - 1, DIRECTORIES_FROM])
def test_directories_are_registered_from_their_level_on(level: int) -> None:
    fleet = Fleet(1, features={"metadata.version": level})
    kept = level >= DIRECTORIES_FROM
    assert fleet.image.brokers[1].log_dirs == ((directory(10),) if kept else ())
    if not kept:
        fleet.ask(changed(log_dirs=[]))
        assert 9 in fleet.image.brokers


@pytest.mark.parametrize(
    ("low", "high", "fits"), [(0, 2, True), (2, 2, True), (0, 1, False), (3, 4, False), (0, 0, False)]
)
def test_a_broker_runs_every_feature_at_its_level(low: int, high: int, fits: bool) -> None:
    fleet = Fleet(1)
    features = [each for each in registration().features if each.name != "transaction.version"]
    own = broker.Feature(name="transaction.version", min_supported_version=low, max_supported_version=high)
    request = changed(features=[*features, own])
    if fits:
        assert fleet.ask(request).broker_epoch == fleet.image.brokers[9].epoch
        return
    code, message = refused(fleet, request)
    assert code is ErrorCode.UNSUPPORTED_VERSION
    assert message == (
        "Unable to register because the broker does not support finalized version 2 of transaction.version. The "
        f"broker wants a version between {low} and {high}, inclusive."
    )
    assert refused(fleet, changed(features=features))[0] is ErrorCode.UNSUPPORTED_VERSION
    # What it says of its features counts before what it does not say, and then metadata.version before the others.
    assert refused(fleet, changed(features=[own]))[0] is ErrorCode.UNSUPPORTED_VERSION
    fitting = broker.Feature(name="transaction.version", min_supported_version=0, max_supported_version=2)
    assert refused(fleet, changed(features=[fitting]))[0] is ErrorCode.INVALID_REGISTRATION


def test_a_broker_that_is_not_registered_is_not_unregistered_nor_the_node_that_is_asked() -> None:
    fleet = Fleet(2, node_id="1")
    assert refused(fleet, UnregisterBrokerRequest(broker_id=9)) == (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "Broker ID 9 is not currently registered",
    )
    assert refused(fleet, UnregisterBrokerRequest(broker_id=1)) == (
        ErrorCode.INVALID_REQUEST,
        "Broker 1 is the node that you ask; stop it first",
    )
    fleet.ask(UnregisterBrokerRequest(broker_id=2))
    assert set(fleet.image.brokers) == {1}


def test_an_epoch_is_that_of_the_last_registration() -> None:
    fleet = Fleet(1)
    epoch = fleet.image.brokers[1].epoch
    check_broker_epoch(fleet.image, 1, epoch)
    for broker_id, asked, words in (
        (1, epoch - 1, f"Expected broker epoch {epoch}, but got broker epoch {epoch - 1}"),
        (1, epoch + 1, f"Expected broker epoch {epoch}, but got broker epoch {epoch + 1}"),
        (2, epoch, "No broker registration found for broker id 2"),
    ):
        request = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=asked)
        assert refused(fleet, request) == (ErrorCode.STALE_BROKER_EPOCH, words)


def test_a_heartbeat_says_whether_the_broker_has_read_its_registration() -> None:
    fleet = Fleet(1)
    fleet.register(2)
    at = fleet.image.offset
    behind = fleet.beat(2, offset=at - 1)
    assert (behind.is_caught_up, behind.is_fenced, behind.should_shut_down) == (False, True, False)
    waits = fleet.beat(2, offset=at, want_fence=True)
    assert (waits.is_caught_up, waits.is_fenced) == (True, True)
    serves = fleet.beat(2, offset=at)
    assert (serves.is_caught_up, serves.is_fenced) == (True, False)
    stops = fleet.beat(2, want_shut_down=True)
    assert (stops.is_fenced, stops.should_shut_down) == (True, True)
    assert fleet.image.brokers[2].fenced


def test_the_same_incarnation_that_registers_again_is_neither_fenced_nor_new() -> None:
    fleet = Fleet(2)
    before = fleet.image.brokers[2]
    fleet.topic("flights", [2, 1])
    request = registration(2)
    request.rack = "moved"
    assert fleet.ask(request).broker_epoch == before.epoch
    assert fleet.image.brokers[2] == before._replace(rack="moved")
    assert fleet.partition("flights").leader == 2 and fleet.partition("flights").leader_epoch == 0
