"""What Metadata answers about topics by name and by id, version by version, and the controllers of DescribeCluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.coordinators.auto_creation import CREATING_MAX, AutoCreation
from ottla.broker.coordinators.topic_spec import new_topic
from ottla.broker.handlers.cluster import describe_controllers
from ottla.broker.handlers.metadata import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, metadata
from ottla.broker.metadata.broker_view import BrokerView
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, OFFSETS_TOPIC, Uuid
from ottla.metadata.feature import CONTROLLER_REGISTRATIONS_FROM
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.single_node import single_node
from ottla.wire.api.broker_registration import Listener
from ottla.wire.api.describe_cluster import DescribeClusterRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.table_node import called, done
from tests.controller.fleet import Fleet

NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ILLEGAL = ErrorCode.INVALID_TOPIC_EXCEPTION
_NO_TEXTS: Mapping[str, str] = {}
_OTHER = Uuid(b"o" * 16)


class _Created(list[str]):
    """The topics that a node was told to create, and how to answer."""

    answer: Callable[[dict[str, KafkaError]], None]
    #: (partitions, replicas) of each.
    sizes: list[tuple[int, int]]


def _node(fleet: Fleet, created: _Created, creates: bool, own: Mapping[str, str]) -> dict[str, Any]:
    def create(topics: list[Any], then: Any) -> None:
        created.extend(topic.name for topic in topics)
        created.sizes = [(topic.num_partitions, topic.replication_factor) for topic in topics]
        created.answer = then

    names = {topic.topic_id: name for name, topic in fleet.image.topics.items()}
    offsets: Any = SimpleNamespace(new_topic=lambda: new_topic(OFFSETS_TOPIC))
    texts = {"auto.create.topics.enable": str(creates).lower(), **own}
    return {
        "settings": ServerSettings.parse(single_node("/x", "h", 1, 3) | texts),
        "image": fleet.image,
        "brokers_at": lambda name: BrokerView(fleet.image.brokers, name),
        "topic_name": names.get,
        "cluster_id": "c",
        "rng": Random(1),
        "create_topics": create,
        "coordinators_of": {OFFSETS_TOPIC: offsets}.get,
    }


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet(0)
    for broker_id in (1, 2, 3):
        listeners = [Listener(name="CLIENTS", host=f"b{broker_id}", port=9092, security_protocol=0)]
        made.register(broker_id, listeners=listeners, rack=f"r{broker_id}")
        made.beat(broker_id)
    made.topic("t", [1, 2], [2, 3])
    made.topic("u", [3])
    return made


@pytest.fixture
def created() -> _Created:
    return _Created()


def _asked(*topics: str | Uuid | tuple[str | None, Uuid]) -> list[MetadataRequestTopic]:
    found = []
    for each in topics:
        name, topic_id = each if isinstance(each, tuple) else (each, NO_UUID) if isinstance(each, str) else (None, each)
        found.append(MetadataRequestTopic(name=name, topic_id=topic_id))
    return found


def _answer(
    fleet: Fleet,
    created: _Created,
    version: int,
    topics: Any,
    *,
    allow: bool = False,
    creates: bool = True,
    own: Mapping[str, str] = _NO_TEXTS,
    **more: Any,
) -> Any:
    call = called(version)
    call.node = _made(fleet, created, creates, own)
    call.connection.listener_name = "CLIENTS"
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=allow, **more)
    return done(metadata(call, request), call)


def _made(fleet: Fleet, created: _Created, creates: bool = True, own: Mapping[str, str] = _NO_TEXTS) -> Any:
    node = Mock(**_node(fleet, created, creates, own))
    node.auto_creation = AutoCreation(node, node.create_topics, node.coordinators_of)
    return node


def _ask(node: Any, *topics: str) -> Any:
    """What a client is told that wants these topics created."""
    call = called(12)
    call.node = node
    return done(metadata(call, MetadataRequest(topics=_asked(*topics), allow_auto_topic_creation=True)), call)


def _shown(response: Any) -> list[tuple[str | None, ErrorCode, int]]:
    return [(each.name, each.error_code, len(each.partitions)) for each in response.topics]


@pytest.mark.parametrize(
    ("version", "topics", "expected"),
    [
        (0, [], [("t", NONE, 2), ("u", NONE, 1)]),
        (1, [], []),
        (1, None, [("t", NONE, 2), ("u", NONE, 1)]),
        (0, _asked("u"), [("u", NONE, 1)]),
        (12, _asked("u", "t", "u"), [("u", NONE, 1), ("t", NONE, 2)]),
        (12, _asked("v"), [("v", UNKNOWN, 0)]),
        (12, _asked("a b", ""), [("a b", ILLEGAL, 0), ("", ILLEGAL, 0)]),
    ],
)  # fmt: skip
def test_topics_by_name(fleet: Fleet, created: _Created, version: int, topics: Any, expected: Any) -> None:
    response = _answer(fleet, created, version, topics)
    assert _shown(response) == expected
    assert created == []
    assert [(each.node_id, each.host, each.port, each.rack) for each in response.brokers] == [
        (n, f"b{n}", 9092, f"r{n}") for n in (1, 2, 3)
    ]
    assert response.cluster_id == "c" and response.controller_id in (1, 2, 3)
    for topic in response.topics:
        if topic.error_code == NONE:
            assert topic.topic_id == fleet.image.topics[topic.name].topic_id


def test_a_topic_by_its_id_has_its_name_too(fleet: Fleet, created: _Created) -> None:
    mine = fleet.image.topics["t"].topic_id
    response = _answer(fleet, created, 12, _asked(mine, _OTHER, mine))
    assert _shown(response) == [("t", NONE, 2), (None, ErrorCode.UNKNOWN_TOPIC_ID, 0)]
    assert [each.topic_id for each in response.topics] == [mine, _OTHER]


def test_names_beside_ids_are_ignored_as_by_apache(fleet: Fleet, created: _Created) -> None:
    mine = fleet.image.topics["t"].topic_id
    for topics in (_asked(mine, "u"), _asked("u", mine), _asked(("u", mine))):
        assert _shown(_answer(fleet, created, 12, topics, allow=True)) == [("t", NONE, 2)]
    # No name of such a request is created.
    assert _shown(_answer(fleet, created, 12, _asked(mine, "v"), allow=True)) == [("t", NONE, 2)]
    assert created == []


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_in_versions_that_only_have_a_field_for_them(
    fleet: Fleet, created: _Created, version: int
) -> None:
    for topics in (_asked(fleet.image.topics["t"].topic_id), _asked(("t", _OTHER)), [MetadataRequestTopic(name=None)]):
        with pytest.raises(KafkaError) as refused:
            _answer(fleet, created, version, topics)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert _shown(_answer(fleet, created, version, _asked("t"))) == [("t", NONE, 2)]


@pytest.mark.parametrize("count", [500, 501, 4001])
@pytest.mark.parametrize("by_id", [False, True])
def test_a_long_request_is_answered_like_a_short_one(fleet: Fleet, created: _Created, count: int, by_id: bool) -> None:
    mine = fleet.image.topics["u"].topic_id
    expected: list[Any]
    if by_id:
        topics = _asked(*(Uuid(n.to_bytes(16, "big")) for n in range(1, count)), mine, mine, "t")
        expected = [(None, ErrorCode.UNKNOWN_TOPIC_ID, 0)] * (count - 1) + [("u", NONE, 1)]
    else:
        topics = _asked(*(f"x{n}" for n in range(count - 1)), "u", "u", "x0")
        expected = [(f"x{n}", UNKNOWN, 0) for n in range(count - 1)] + [("u", NONE, 1)]
    response = _answer(fleet, created, 12, topics, include_topic_authorized_operations=True)
    shown = list(response.topics)
    assert [(each.name, each.error_code, len(each.partitions)) for each in shown] == expected
    assert shown[-1].topic_authorized_operations == TOPIC_OPERATIONS
    assert (shown[0].topic_authorized_operations == TOPIC_OPERATIONS) is not by_id


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("topic", [False, True])
def test_operations_are_told_when_they_are_asked_for(
    fleet: Fleet, created: _Created, cluster: bool, topic: bool
) -> None:
    response = _answer(
        fleet,
        created,
        10,
        _asked("t", "v"),
        include_cluster_authorized_operations=cluster,
        include_topic_authorized_operations=topic,
    )
    unset = -(1 << 31)
    assert response.cluster_authorized_operations == (CLUSTER_OPERATIONS if cluster else unset)
    assert [each.topic_authorized_operations for each in response.topics] == [TOPIC_OPERATIONS if topic else unset] * 2


# ---- topics that are created


@pytest.mark.parametrize(("allow", "creates", "made"), [(True, True, ["v", "w"]), (False, True, []), (True, False, [])])
def test_a_missing_topic_is_created_where_client_and_node_agree(
    fleet: Fleet, created: _Created, allow: bool, creates: bool, made: list[str]
) -> None:
    reply = _answer(fleet, created, 9, _asked("v", "t", "a b", "w", "v"), allow=allow, creates=creates)
    # The client asks again until the topics are there, as with Apache Kafka: no answer waits for them.
    assert created == made
    assert _shown(reply) == [
        ("v", UNKNOWN, 0),
        ("t", NONE, 2),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION, 0),
        ("w", UNKNOWN, 0),
    ]


def test_a_topic_that_is_being_created_is_not_created_again(fleet: Fleet, created: _Created) -> None:
    node = _made(fleet, created)
    _ask(node, "v")
    _ask(node, "v", "w")
    assert created == ["v", "w"]
    created.answer({})
    _ask(node, "v", "w")
    assert created == ["v", "w", "w"]


def test_why_a_topic_was_not_created_is_logged_once(
    fleet: Fleet, created: _Created, caplog: pytest.LogCaptureFixture
) -> None:
    node = _made(fleet, created)
    few, policy = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few"), KafkaError(ErrorCode.POLICY_VIOLATION)
    there = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)
    for error in (few, few, policy, there, policy):
        assert _shown(_ask(node, "v")) == [("v", UNKNOWN, 0)]
        created.answer({"v": error})
    whats = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    # What another broker has made meanwhile has not failed.
    assert whats == ["too few", "POLICY_VIOLATION", "POLICY_VIOLATION"]


def test_topics_that_are_refused_together_for_one_reason_are_one_line_of_the_log(
    fleet: Fleet, created: _Created, caplog: pytest.LogCaptureFixture
) -> None:
    few, policy = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few"), KafkaError(ErrorCode.POLICY_VIOLATION)
    _ask(_made(fleet, created), *(f"x{number}" for number in range(900)), "y")
    created.answer({**dict.fromkeys(created, few), "y": policy})
    first, second = (record.getMessage() for record in caplog.records)
    assert "x0 and 899 more" in first and first.endswith("too few")
    assert "topic y," in second


@pytest.mark.parametrize("count", [400, 1600])
def test_one_request_begins_to_create_a_bounded_number_of_topics(fleet: Fleet, created: _Created, count: int) -> None:
    node = _made(fleet, created)
    response = _ask(node, *(f"x{number}" for number in range(count)))
    assert len(created) == min(count, CREATING_MAX) and len(response.topics) == count
    _ask(node, *(f"y{number}" for number in range(1000)))
    assert len(created) == CREATING_MAX
    created.answer({})


@pytest.mark.parametrize(
    ("own", "size"),
    [
        ({}, (-1, -1)),
        ({"num.partitions": "6"}, (6, -1)),
        ({"default.replication.factor": "3"}, (-1, 3)),
        ({"num.partitions": "1", "default.replication.factor": "1"}, (1, 1)),
    ],
)
def test_a_missing_topic_is_as_large_as_this_nodes_file_says_or_else_the_controllers(
    fleet: Fleet, created: _Created, own: dict[str, str], size: tuple[int, int]
) -> None:
    _answer(fleet, created, 9, _asked("v"), allow=True, own=own)
    assert created.sizes == [size]


def test_a_coordinators_topic_is_created_as_its_coordinator_wants_it(fleet: Fleet, created: _Created) -> None:
    [topic] = _answer(fleet, created, 9, _asked(OFFSETS_TOPIC), allow=True).topics
    assert created == [OFFSETS_TOPIC]
    assert (topic.error_code, topic.is_internal) == (UNKNOWN, True)


# ---- partitions


def test_a_partition_has_its_leader_its_replicas_and_those_that_are_offline(fleet: Fleet, created: _Created) -> None:
    fleet.silence(2)
    response = _answer(fleet, created, 9, _asked("t"))
    first, second = response.topics[0].partitions
    assert (first.partition_index, first.error_code, first.leader_id) == (0, NONE, 1)
    assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ([1, 2], [1], [2])
    assert (second.partition_index, second.leader_id, second.leader_epoch) == (1, 3, 1)
    assert (second.replica_nodes, second.isr_nodes, second.offline_replicas) == ([2, 3], [3], [2])


def test_the_first_version_leaves_out_replicas_without_an_address(fleet: Fleet, created: _Created) -> None:
    """Its clients cannot handle a replica that is not among the brokers."""
    fleet.register(4, listeners=[Listener(name="INSIDE", host="b4", port=1, security_protocol=0)])
    fleet.beat(4)
    fleet.topic("x", [1, 4], [4, 1], [1, 2])
    for version in (0, 1, 6):
        first, second, third = _answer(fleet, created, version, _asked("x")).topics[0].partitions
        assert (third.replica_nodes, third.isr_nodes, third.error_code) == ([1, 2], [1, 2], NONE)
        if version:
            assert (first.replica_nodes, first.isr_nodes, first.error_code) == ([1, 4], [1, 4], NONE)
        else:
            assert (first.replica_nodes, first.isr_nodes) == ([1], [1])
            assert first.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
        missing = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
        assert (second.leader_id, second.error_code) == (-1, missing), "the worse of two errors"


def test_the_first_version_leaves_out_replicas_on_brokers_that_are_not_there(fleet: Fleet, created: _Created) -> None:
    fleet.silence(2)
    for version in (0, 1):
        response = _answer(fleet, created, version, _asked("t"))
        assert [each.node_id for each in response.brokers] == [1, 3]
        first, second = response.topics[0].partitions
        shown = ([1], [3], ErrorCode.REPLICA_NOT_AVAILABLE) if version == 0 else ([1, 2], [2, 3], NONE)
        assert (first.replica_nodes, second.replica_nodes, first.error_code) == shown
        assert (first.isr_nodes, second.isr_nodes, second.error_code) == ([1], [3], shown[2])


# ---- controllers


def _controllers(
    version: int, leader: int | None, *, kind: int = 2, operations: bool = False, api_version: int = 2
) -> Any:
    def controller(*names: str) -> Any:
        return Mock(end_points=[SimpleNamespace(name=name, host=f"h-{name}", port=len(name)) for name in names])

    controllers = {9: controller("ctl", "other"), 7: controller("other"), 8: controller("ctl")}
    image = Mock(metadata_version=version, controllers=controllers)
    quorum = Mock(image=image, leader=None if leader is None else Mock(node_id=leader))
    call = called(node=None, version=api_version, quorum=quorum, cluster_id="c")
    call.connection.listener_name = "ctl"
    request = DescribeClusterRequest(endpoint_type=kind, include_cluster_authorized_operations=operations)
    return describe_controllers(call, request)


@pytest.mark.parametrize(("leader", "shown"), [(8, 8), (9, 9), (3, -1), (7, -1), (None, -1)])
def test_the_controllers_of_this_listener_are_shown_and_the_active_one(leader: int | None, shown: int) -> None:
    found = _controllers(CONTROLLER_REGISTRATIONS_FROM, leader)
    assert [(each.broker_id, each.host, each.port, each.rack) for each in found.brokers] == [
        (8, "h-ctl", 3, None),
        (9, "h-ctl", 3, None),
    ]
    assert (found.endpoint_type, found.cluster_id, found.controller_id) == (2, "c", shown)
    assert found.cluster_authorized_operations == -(1 << 31)
    told = _controllers(CONTROLLER_REGISTRATIONS_FROM, leader, operations=True)
    assert told.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize(
    ("version", "kind", "api_version", "code"),
    [
        (CONTROLLER_REGISTRATIONS_FROM - 1, 2, 2, ErrorCode.UNSUPPORTED_VERSION),
        (CONTROLLER_REGISTRATIONS_FROM - 1, 1, 0, ErrorCode.UNSUPPORTED_VERSION),
        (CONTROLLER_REGISTRATIONS_FROM, 1, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (CONTROLLER_REGISTRATIONS_FROM, 1, 0, ErrorCode.INVALID_REQUEST),
        (CONTROLLER_REGISTRATIONS_FROM, 3, 2, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_controllers_are_shown_to_whom_asks_for_them(
    version: int, kind: int, api_version: int, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as refused:
        _controllers(version, 8, kind=kind, api_version=api_version)
    assert refused.value.code is code
