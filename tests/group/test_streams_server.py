"""Streams groups on a node: the names in a topology, and the internal topics that an application lacks."""

from collections.abc import Callable, Iterator
from itertools import count
from time import monotonic
from typing import Any

import pytest

import ottla
from ottla.client import Admin, ConfigResource, Downgrade, ResourceType
from ottla.group.topology.configuration import Status
from ottla.kernel.error import ErrorCode
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.streams_group_describe import StreamsGroupDescribeRequest
from ottla.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from tests.broker.wire_client import WireClient
from tests.group.streams import info, join_request, reader

_names = count()
_PATIENCE_S = 30
_COMING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings={"group.streams.initial.rebalance.delay.ms": 0}) as one:
        yield one


@pytest.fixture
def client(node: ottla.Node) -> Iterator[WireClient]:
    with WireClient(node.bootstrap_servers) as one:
        yield one


@pytest.fixture
def topic(node: ottla.Node) -> str:
    """A topic of three partitions; a group gets its name too."""
    name = f"streams-{next(_names)}"
    node.create_topic(name, 3)
    return name


def join(client: WireClient, group: str, *parts: Subtopology) -> Any:
    """The answer to a member's first heartbeat."""
    client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 6)
    deadline = monotonic() + _PATIENCE_S
    while True:
        answer = client.ask(join_request(group, "m", Topology(subtopologies=list(parts))), 0)
        if answer.error_code not in _COMING:
            return answer
        assert monotonic() < deadline


def beat(client: WireClient, group: str, epoch: int) -> Any:
    return client.ask(StreamsGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=epoch), 0)


def statuses(answer: Any) -> dict[int, str]:
    return {status.status_code: status.status_detail for status in answer.status}


def until(what: Callable[[], bool]) -> None:
    deadline = monotonic() + _PATIENCE_S
    while not what():
        assert monotonic() < deadline


def test_internal_topics_are_made_as_the_topology_says(node: ottla.Node, client: WireClient, topic: str) -> None:
    changelog = f"{topic}-changelog"
    joined = join(
        client, topic, reader("0", [topic], state_changelog_topics=[info(changelog, cleanup_policy="compact")])
    )
    assert statuses(joined) == {Status.MISSING_INTERNAL_TOPICS: f"Internal topics are missing: {changelog}"}
    given: list[Any] = []

    def works() -> bool:
        answer = beat(client, topic, given[-1].member_epoch if given else joined.member_epoch)
        given.append(answer)
        return bool(answer.active_tasks)

    until(works)
    assert given[-1].active_tasks[0].partitions == [0, 1, 2]
    assert statuses(given[-1]) == {}
    with Admin(node.bootstrap_servers) as admin:
        assert len(admin.describe_topic(changelog).partitions) == 3
        configs = admin.describe_config(ConfigResource(ResourceType.TOPIC, changelog))
        assert configs["cleanup.policy"].value == "compact"


def test_a_member_hears_why_an_internal_topic_cannot_be_made(client: WireClient, topic: str) -> None:
    wrong = reader("0", [topic], state_changelog_topics=[info(f"{topic}-changelog", cleanup_policy="shred")])
    joined = join(client, topic, wrong)
    for answer in (joined, beat(client, topic, joined.member_epoch)):
        detail = statuses(answer)[Status.MISSING_INTERNAL_TOPICS]
        assert f"Creation failed: {topic}-changelog (" in detail and "shred" in detail


@pytest.mark.parametrize("name", ["__consumer_offsets", "no/topic", ""])
def test_a_topology_uses_no_topics_that_applications_may_not(client: WireClient, topic: str, name: str) -> None:
    answer = join(client, topic, reader("0", [topic], repartition_sink_topics=[name]))
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert name in answer.error_message


def test_without_the_feature_there_are_no_streams_groups(topic: str, client: WireClient, node: ottla.Node) -> None:
    with Admin(node.bootstrap_servers) as admin:
        admin.update_features({"streams.version": 0}, downgrade=Downgrade.SAFE).check()
        try:
            assert join(client, topic, reader("0", [topic])).error_code == ErrorCode.UNSUPPORTED_VERSION
            (described,) = client.ask(StreamsGroupDescribeRequest(group_ids=[topic]), 0).groups
            assert described.error_code == ErrorCode.UNSUPPORTED_VERSION
        finally:
            admin.update_features({"streams.version": 1}).check()
    assert join(client, topic, reader("0", [topic])).error_code == ErrorCode.NONE


def test_a_group_has_settings_of_its_own(node: ottla.Node, topic: str, client: WireClient) -> None:
    with Admin(node.bootstrap_servers) as admin:
        resource = ConfigResource(ResourceType.GROUP, topic)
        admin.alter_config(resource, {"streams.heartbeat.interval.ms": "7000"})
        assert join(client, topic, reader("0", [topic])).heartbeat_interval_ms == 7_000
        admin.alter_config(resource, {"streams.heartbeat.interval.ms": "8000"})
        assert beat(client, topic, 2).heartbeat_interval_ms == 8_000
