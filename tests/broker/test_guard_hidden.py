"""What a client may not know of: topics that it asks for by id, and groups of streams that speak of hidden topics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers.streams_group import streams_group_heartbeat
from ottla.group.event import StreamsHeartbeat
from ottla.group.topology.configuration import Status
from ottla.group.topology.topology import InternalTopic
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, Uuid
from ottla.wire.api import ApiKey
from ottla.wire.api import streams_group_describe as described
from ottla.wire.api import streams_group_heartbeat as heartbeat
from ottla.wire.api.describe_topic_partitions import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.wire.api.metadata import MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceResponse, TopicProduceData
from ottla.wire.compile import FEW
from tests.broker.guard_scene import Asked, Scene

_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_THERE, _HIDDEN, _UNKNOWN = (Uuid(each * 16) for each in (b"1", b"2", b"3"))


def test_a_topic_that_is_asked_for_by_id_keeps_its_name_to_itself() -> None:
    scene = Scene(ApiKey.METADATA, 12, "DESCRIBE TOPIC hidden", response=MetadataResponse())
    scene.request.topics = [MetadataRequestTopic(topic_id=each, name=None) for each in (_THERE, _HIDDEN, _UNKNOWN)]
    scene.request.topics.append(MetadataRequestTopic(topic_id=NO_UUID, name="x"))
    told = scene.ask()
    # Unknown ids are no secret: the handler says that they are unknown.
    assert [each.topic_id for each in scene.passed[0].topics] == [_THERE, _UNKNOWN, NO_UUID]
    assert [(each.error_code, each.name, each.topic_id) for each in told.topics] == [(_DENIED, None, _HIDDEN)]
    assert scene.authorizer.questions[:2] == ["DESCRIBE TOPIC there", "DESCRIBE TOPIC hidden"]


def test_records_for_a_topic_without_a_name_are_refused_like_those_for_any_other() -> None:
    scene = Scene(ApiKey.PRODUCE, 12, "WRITE TOPIC ", response=ProduceResponse())
    scene.request.acks = 1
    scene.request.topic_data = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=b"")]) for name in ("", "x")
    ]
    told = scene.ask()
    assert [each.name for each in scene.passed[0].topic_data] == ["x"]
    assert [(each.name, each.partition_responses[0].error_code) for each in told.responses] == [("", _DENIED)]


def test_the_operations_on_a_topic_without_a_name_are_not_told() -> None:
    named, nameless = MetadataResponseTopic(name="there"), MetadataResponseTopic(name=None, topic_id=_UNKNOWN)
    scene = Scene(ApiKey.METADATA, 12, response=MetadataResponse(topics=[named, nameless]))
    for wanted in (False, True):
        scene.request.include_topic_authorized_operations = wanted
        scene.ask()
        assert (named.topic_authorized_operations == 1005) is wanted
        assert nameless.topic_authorized_operations == MetadataResponseTopic().topic_authorized_operations


def _partitions(names: list[str], *denied: str) -> tuple[list[str], dict[str, int]]:
    """What the handler was asked for, and name -> code of what the client is told."""
    response = DescribeTopicPartitionsResponse(topics=[DescribeTopicPartitionsResponseTopic(name="there")])
    scene = Scene(ApiKey.DESCRIBE_TOPIC_PARTITIONS, None, *denied, response=response)
    scene.request.topics = [type(scene.request.topics[0])(name=each) for each in names]
    told = scene.ask()
    assert all(each.topic_authorized_operations == 1005 for each in told.topics if not each.error_code)
    passed = [each.name for each in scene.passed[0].topics] if scene.passed else []
    return passed, {each.name: each.error_code for each in told.topics}


def test_partitions_are_described_of_what_may_be_described() -> None:
    assert _partitions(["there", "b"]) == (["there", "b"], {"there": 0})
    assert _partitions(["there", "b"], "DESCRIBE TOPIC b") == (["there"], {"there": 0, "b": _DENIED})
    assert _partitions(["b"], "DESCRIBE TOPIC b") == ([], {"b": _DENIED})
    # No names ask for every topic, and of these nothing hidden is told.
    assert _partitions([]) == (["there"], {"there": 0})
    assert _partitions([], "DESCRIBE TOPIC there") == ([], {})


def _group(**subtopology: Any) -> described.DescribedGroup:
    made = described.DescribedGroup(group_id="g", members=[described.Member(member_id="m")])
    made.topology = described.Topology(epoch=1, subtopologies=[described.Subtopology(**subtopology)])
    return made


_NAMED = [described.TopicInfo(name="secret")]


@pytest.mark.parametrize(
    "where",
    [
        {"source_topics": ["open", "secret"]},
        {"repartition_sink_topics": ["secret"]},
        {"state_changelog_topics": _NAMED},
        {"repartition_source_topics": _NAMED},
    ],
    ids=lambda where: next(iter(where)),
)
def test_a_streams_group_whose_topology_names_a_hidden_topic_is_hidden(where: dict[str, Any]) -> None:
    for denied in ((), ("DESCRIBE TOPIC secret",)):
        response = described.StreamsGroupDescribeResponse(groups=[_group(**where)])
        (told,) = Scene(ApiKey.STREAMS_GROUP_DESCRIBE, None, *denied, response=response).ask().groups
        assert (told.error_code, len(told.members), told.topology is None, bool(told.error_message)) == (
            (_DENIED, 0, True, True) if denied else (0, 1, False, False)
        )


def test_a_group_without_a_topology_is_shown() -> None:
    for topology in (None, described.Topology(epoch=1, subtopologies=None)):
        group = described.DescribedGroup(group_id="g", topology=topology)
        response = described.StreamsGroupDescribeResponse(groups=[group])
        (told,) = Scene(ApiKey.STREAMS_GROUP_DESCRIBE, None, "DESCRIBE TOPIC secret", response=response).ask().groups
        assert told.error_code == 0


@pytest.mark.parametrize("times", [1, FEW])
def test_a_hidden_group_among_many_is_hidden_and_denied_ones_follow(times: int) -> None:
    groups = [_group(source_topics=["secret" if number else "open"]) for number in range(times + 1)]
    response = described.StreamsGroupDescribeResponse(groups=groups)
    denied = ("DESCRIBE GROUP group_ids1", "DESCRIBE TOPIC secret")
    scene = Scene(ApiKey.STREAMS_GROUP_DESCRIBE, None, *denied, response=response)
    scene.request.include_authorized_operations = True
    told = scene.ask().groups
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert len(told) == times + 2
    assert [each.error_code for each in told] == [0, *[_DENIED] * times, refused]
    assert [len(each.members) for each in told] == [1, *[0] * times, 0]
    none = described.DescribedGroup().authorized_operations
    assert [each.authorized_operations for each in told] == [1001, *[none] * times, none]


# ---- the names in a topology


class _Groups:
    """The group coordinators; what they are asked is answered by the test."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.made: list[Any] = []
        self.internal_topics = SimpleNamespace(make=lambda *given: self.made.append(given))

    def driver_of(self, group_id: str) -> Any:
        assert group_id == "g"
        return SimpleNamespace(ask=lambda request, version, done, **client: self.asked.append((request, client, done)))

    def heartbeat(
        self, monkeypatch: pytest.MonkeyPatch, authorizer: Any = None, connection: Any = None, **subtopology: Any
    ) -> Any:
        monkeypatch.setattr("ottla.broker.handlers.streams_group.check_enabled", lambda node, kind: None)
        call: Any = SimpleNamespace(
            node=SimpleNamespace(groups=self, authorizer=authorizer),
            version=0,
            client_id="c",
            client_host="/h",
            principal="User:p",
            connection=connection,
        )
        topology = heartbeat.Topology(epoch=1, subtopologies=[heartbeat.Subtopology(**subtopology)])
        return streams_group_heartbeat(call, heartbeat.StreamsGroupHeartbeatRequest(group_id="g", topology=topology))


@pytest.mark.parametrize(
    "field", ["source_topics", "repartition_sink_topics", "repartition_source_topics", "state_changelog_topics"]
)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "__consumer_offsets",
            "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
        ),
        (
            "__transaction_state",
            "Use of Kafka internal topics __transaction_state in a Kafka Streams topology is prohibited.",
        ),
        ("no such", "Topic names no such are not valid topic names."),
    ],
)
def test_a_topology_with_a_name_that_cannot_be_is_refused(
    field: str, name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = _Groups()
    named: Any = (
        [name, "fine"]
        if field.endswith("s") and field in ("source_topics", "repartition_sink_topics")
        else [heartbeat.TopicInfo(name=name)]
    )
    with pytest.raises(KafkaError) as refused:
        groups.heartbeat(monkeypatch, **{field: named})
    assert (refused.value.code, refused.value.message) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, words)
    assert groups.asked == []


def test_the_names_of_a_long_topology_are_checked_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, turns = _Groups(), list[Any]()
    connection = SimpleNamespace(pause=lambda: None, resume=lambda: None, closed=False)
    connection.turns = SimpleNamespace(wait=turns.append)
    sources = [f"n{number}" for number in range(2500)]
    reply = groups.heartbeat(monkeypatch, connection=connection, source_topics=sources)
    for _ in range(2):
        assert groups.asked == []
        turns.pop()()
    ((_, _, done),) = groups.asked
    response = heartbeat.StreamsGroupHeartbeatResponse()
    done(StreamsHeartbeat(response, ()))
    assert (reply.value, turns) == (response, [])


def test_a_heartbeat_whose_group_lacks_topics_is_answered_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = _Groups()
    response = heartbeat.StreamsGroupHeartbeatResponse()
    replies = [groups.heartbeat(monkeypatch, source_topics=["fine"]) for _ in range(3)]
    assert isinstance(groups.asked[0][0], heartbeat.StreamsGroupHeartbeatRequest)
    assert groups.asked[0][1] == {"client_id": "c", "client_host": "/h", "principal": "User:p"}
    first, second, third = (done for _, _, done in groups.asked)
    first(StreamsHeartbeat(response, ()))
    assert replies[0].value is response and groups.made == []
    error = KafkaError(ErrorCode.NOT_COORDINATOR)
    second(error)
    assert replies[1].value is error
    third(StreamsHeartbeat(response, ("missing",)))  # type: ignore[arg-type]
    # As in Apache Kafka: the member hears of its topics with a later heartbeat.
    assert groups.made == [(("missing",), response)]
    assert replies[2].value is response


@pytest.mark.parametrize(
    ("denied", "words"),
    [
        ((), None),
        (("CREATE CLUSTER",), None),
        (("CREATE TOPIC a", "CREATE TOPIC b"), None),
        (("CREATE CLUSTER", "CREATE TOPIC b"), "Unauthorized to CREATE on topics b."),
        (("CREATE CLUSTER", "CREATE TOPIC b", "CREATE TOPIC a"), "Unauthorized to CREATE on topics a, b."),
    ],
)
def test_a_member_is_told_which_missing_topics_it_may_not_create(
    denied: tuple[str, ...], words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Apache Kafka: it is a member all the same, and with one topic denied none is created."""
    groups, authorizer = _Groups(), Asked(*denied)
    reply = groups.heartbeat(monkeypatch, authorizer, source_topics=["fine"])
    assert authorizer.questions == []
    other = heartbeat.Status(status_code=Status.STALE_TOPOLOGY, status_detail="stale")
    status = heartbeat.Status(status_code=Status.MISSING_INTERNAL_TOPICS, status_detail="missing")
    response = heartbeat.StreamsGroupHeartbeatResponse(status=[other, status])
    missing = tuple(InternalTopic(name, 1, 1, ()) for name in ("a", "b"))
    groups.asked[0][2](StreamsHeartbeat(response, missing))
    assert reply.value is response
    assert groups.made == ([] if words else [(missing, response)])
    assert [each.status_detail for each in response.status or ()] == [
        "stale",
        f"missing; {words}" if words else "missing",
    ]
    assert "CREATE CLUSTER" not in authorizer.logged, "it has an alternative"
