"""DeleteTopics."""

import pytest

from ottla.controller.delete_topics import delete_topics
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.controller.scene import Cluster

SIZES = (("small", 1), ("large", 3), ("other", 2))


def answers(cluster: Cluster, request: DeleteTopicsRequest, version: int = 6) -> dict[object, tuple[int, str | None]]:
    response = cluster.ask(request, version)
    return {each.name or each.topic_id: (each.error_code, each.error_message) for each in response.responses}


def test_a_topic_goes_by_name_with_its_settings() -> None:
    cluster = Cluster()
    cluster.create("flights", configs={"retention.ms": "1"})
    assert answers(cluster, DeleteTopicsRequest(topic_names=["flights"]), 5) == {"flights": (0, None)}
    assert not cluster.image.topics
    assert not cluster.image.config(2, "flights")


def test_a_topic_goes_by_id() -> None:
    cluster = Cluster()
    topic_id = cluster.create("flights").topic_id
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
    assert answers(cluster, request) == {"flights": (0, None)}
    assert not cluster.image.topics


def test_a_topic_made_again_is_another_topic() -> None:
    cluster = Cluster()
    first = cluster.create("flights").topic_id
    cluster.ask(DeleteTopicsRequest(topic_names=["flights"]))
    assert cluster.create("flights").topic_id != first


def test_what_is_not_there_is_told_by_name_and_by_id() -> None:
    unknown = Uuid(b"0123456789abcdef")
    topics = [DeleteTopicState(name="none"), DeleteTopicState(name=None, topic_id=unknown)]
    assert answers(Cluster(), DeleteTopicsRequest(topics=topics)) == {
        "none": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
        unknown: (ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
    }


def test_what_is_named_twice_stays() -> None:
    cluster = Cluster()
    topic_id = cluster.create("a").topic_id
    cluster.create("b")
    topics = [DeleteTopicState(name="a"), DeleteTopicState(name=None, topic_id=topic_id)]
    assert answers(cluster, DeleteTopicsRequest(topics=topics)) == {
        "a": (ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")
    }
    assert answers(cluster, DeleteTopicsRequest(topic_names=["b", "b"])) == {
        "b": (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    }
    twice = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id) for _ in range(2)])
    assert answers(cluster, twice) == {topic_id: (ErrorCode.INVALID_REQUEST, "Duplicate topic id.")}
    assert list(cluster.image.topics) == ["a", "b"]


def test_a_topic_is_named_in_one_way() -> None:
    cluster = Cluster()
    topic_id = cluster.create("a").topic_id
    topics = [DeleteTopicState(name="a", topic_id=topic_id), DeleteTopicState(name=None)]
    found = answers(cluster, DeleteTopicsRequest(topics=topics))
    assert [message for _, message in found.values()] == [
        "You may not specify both topic name and topic id.",
        "Neither topic name nor id were specified.",
    ]


@pytest.mark.parametrize(("version", "code"), [(2, "INVALID_REQUEST"), (3, "TOPIC_DELETION_DISABLED")])
def test_deletion_can_be_switched_off(version: int, code: str) -> None:
    cluster = Cluster(delete_topic_enable="false")
    cluster.create("a")
    [(found, _)] = answers(cluster, DeleteTopicsRequest(topic_names=["a"]), version).values()
    assert ErrorCode(found).name == code
    assert "a" in cluster.image.topics


def test_a_topic_beyond_the_mutation_quota_stays() -> None:
    cluster = Cluster()
    ids = {name: cluster.create(name, num_partitions=count, replication_factor=1).topic_id for name, count in SIZES}

    def charge(partitions: int) -> None:
        if partitions > 2:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{partitions} are too many")

    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in ids])
    decision = delete_topics(cluster.image, cluster.settings, request, 6, charge)
    assert [(each.name, each.topic_id, each.error_code) for each in decision.response.responses] == [
        ("small", ids["small"], ErrorCode.NONE),
        ("large", ids["large"], ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        ("other", ids["other"], ErrorCode.NONE),
    ]
    assert [record.topic_id for record in decision.records] == [ids["small"], ids["other"]]
