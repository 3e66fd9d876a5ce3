"""Members that end their session or membership while a share coordinator takes its time."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla.broker.share.partitions import Shares
from ottla.broker.share.persister import Persister
from ottla.settings.server.settings import ServerSettings
from ottla.share.state import SharePartitionKey
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker.wire_client import WireClient
from tests.controller.scene import SETTINGS
from tests.share.member import ACCEPT, Member, create, outcomes, produce, records_of, set_group


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings={"share.coordinator.state.topic.num.partitions": 3}) as node:
        yield node


@pytest.fixture
def client(node: ottla.Node) -> Iterator[WireClient]:
    with WireClient(node.bootstrap_servers) as client:
        yield client


def _replay(node: ottla.Node, do: Any, calls: list[tuple[Any, ...]]) -> None:
    """Make calls that were held, on the node's loop."""

    def all_of_them() -> None:
        for call in calls:
            do(*call)

    node._on_loop(all_of_them)


def test_a_session_that_is_closed_twice_while_that_is_stored_answers_both(
    node: ottla.Node, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = "closes"
    set_group(client, group, {"share.auto.offset.reset": "earliest"})
    topic, _ = create(client)
    produce(client, topic, b"a", b"b")
    held: list[tuple[Any, ...]] = []
    write = Persister.write
    with Member(node.bootstrap_servers, group, topic).join() as one:
        assert len(one.take()) == 2
        # The share coordinator takes its time.
        monkeypatch.setattr(Persister, "write", lambda *call: held.append(call))
        for offset in (0, 1):
            one.send_acknowledge((0, offset, offset, [ACCEPT]), share_session_epoch=-1)
        while len(held) < 2:
            client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
        monkeypatch.setattr(Persister, "write", write)
        _replay(node, write, held)
        assert [outcomes(one.client.receive(79, 2)) for _ in range(2)] == [[(0, 0)], [(0, 0)]]


def test_a_member_that_leaves_while_its_join_is_held_is_answered_and_gone(
    node: ottla.Node, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = "leaves"
    topic, _ = create(client)
    client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
    held: list[tuple[Any, ...]] = []
    initialize = Persister.initialize
    monkeypatch.setattr(Persister, "initialize", lambda *call: held.append(call))
    monkeypatch.setattr("ottla.group.share.heartbeat._HOLD_MS", 600_000)
    for epoch in (0, -1):
        topics = [topic] if epoch == 0 else None
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id="m", member_epoch=epoch, subscribed_topic_names=topics
        )
        client.send(request, 1)
    assert [client.receive(76, 1).error_code for _ in range(2)] == [0, 0]
    _replay(node, initialize, held)
    assert [each.members for each in client.ask(ShareGroupDescribeRequest(group_ids=[group]), 1).groups] == [[]]


def test_a_fetch_that_waits_goes_on_with_a_share_partition_that_is_loaded_again(
    node: ottla.Node, client: WireClient
) -> None:
    """As after a fenced write: whatever the members had acquired is available again."""
    group = "loads"
    set_group(client, group, {"share.auto.offset.reset": "earliest"})
    topic, topic_id = create(client)
    produce(client, topic, b"a")
    with (
        Member(node.bootstrap_servers, group, topic).join() as one,
        Member(node.bootstrap_servers, group, topic) as two,
    ):
        assert len(one.take()) == 1
        two.assigned = one.assigned
        two.fetch()
        two.send_fetch(wait_ms=600_000)
        assert node._node is not None
        shares, key = node._node.shares, SharePartitionKey(group, topic_id, 0)
        while (leader := shares.find(key)) is None or not leader.waiting:
            client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
        node._on_loop(lambda: shares.drop(key))
        assert [each.value for each in records_of(two.receive_fetch())] == [b"a"]


def test_the_settings_of_a_group_stay_no_longer_than_its_sessions() -> None:
    """The answers to a last request, and to one whose connection is gone, are made after the end of the session."""
    image = SimpleNamespace(config=lambda kind, name: {"share.record.lock.duration.ms": "20000"})
    runtime: Any = SimpleNamespace(image=image, settings=ServerSettings.parse(SETTINGS))
    unused: Any = None
    shares = Shares(runtime, unused, unused, unused)
    session = shares.sessions.begin(("g", "m"), [], "connection", 10)
    settings = shares.settings_of("g")
    assert settings.share_record_lock_duration_ms == 20_000
    assert shares.settings_of("g") is settings, "they are not resolved for every request"
    shares.end_session(session)
    assert shares.settings_of("g").share_record_lock_duration_ms == 20_000
    assert shares._settings == {}
