"""The share partitions and the sessions of a node, and the log of its share coordinator."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.share.partitions import Shares
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import SHARE_TOPIC, TopicPartition, Uuid
from ottla.share.session import ShareSessions
from ottla.share.state import SharePartitionKey
from ottla.sim.machine import Machine
from ottla.wire.api import initialize_share_group_state as initialize
from ottla.wire.api import write_share_group_state as write
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState

_ID = Uuid(b"a topic's id....")


def test_a_change_of_settings_is_told_to_every_share_partition_and_the_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int]] = []

    class Leader:
        def __init__(self, shares: Any, key: SharePartitionKey, partition: Any) -> None:
            self._index = key.partition

        def __getattr__(self, name: str) -> Any:
            return lambda: told.append((name, self._index))

    monkeypatch.setattr("ottla.broker.share.partitions.share_leader", SimpleNamespace(ShareLeader=Leader))
    parts: Any = (None, None, None, None)
    shares = Shares(*parts)
    keys = [SharePartitionKey("g", _ID, index) for index in (0, 1)]
    for key in keys:
        shares.lead(key, parts[0])
    assert told == [("open", 0), ("open", 1)]
    shares.settings_changed()
    assert told[2:] == [("settings_changed", 0), ("settings_changed", 1)]
    shares.close()
    assert told[4:] == [("close", 0), ("close", 1)]
    assert [shares.find(key) for key in keys] == [None, None]


def test_the_end_of_a_partition_looks_at_its_own_share_partitions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion of a wide topic ends thousands of partitions in one turn of the loop."""
    looks: list[int] = []

    class Leader:
        def __init__(self, shares: Any, key: SharePartitionKey, partition: Any) -> None:
            self._led = partition

        @property
        def partition(self) -> Any:
            looks.append(self._led.tp.partition)
            return self._led

        def __getattr__(self, name: str) -> Any:
            return lambda: None

    monkeypatch.setattr("ottla.broker.share.partitions.share_leader", SimpleNamespace(ShareLeader=Leader))
    parts: Any = (None, None, None, None)
    shares = Shares(*parts)
    led: list[Any] = [SimpleNamespace(topic_id=_ID, tp=TopicPartition("t", index)) for index in range(50)]
    keys = {each: [SharePartitionKey(group, _ID, each) for group in ("g", "h")] for each in range(50)}
    for partition in led:
        for key in keys[partition.tp.partition]:
            shares.lead(key, partition)
    shares.resign(SimpleNamespace(topic_id=_ID, tp=TopicPartition("t", 7)))  # type: ignore[arg-type]
    assert all(shares.find(key) for key in keys[7]), "they are of another leader epoch"
    shares.drop(keys[9][0])
    looks.clear()
    for partition in led:
        shares.resign(partition)
        assert not any(map(shares.find, keys[partition.tp.partition]))
    assert len(looks) == 99
    assert not shares._of_partition


class _Looked(dict[Any, Any]):
    """How often all of it was looked at."""

    times = 0

    def __iter__(self) -> Any:
        self.times += 1
        return super().__iter__()

    def values(self) -> Any:
        self.times += 1
        return super().values()


def test_the_end_of_a_connection_looks_at_its_own_share_partitions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client may have the sessions of 2,000 groups on one connection."""

    class Leader:
        def __init__(self, shares: Any, key: SharePartitionKey, partition: Any) -> None:
            self.partition = partition

        def __getattr__(self, name: str) -> Any:
            return lambda *_: None

    monkeypatch.setattr("ottla.broker.share.partitions.share_leader", SimpleNamespace(ShareLeader=Leader))
    parts: Any = (None, None, None, None)
    shares = Shares(*parts)
    shares._leaders, shares.sessions._sessions = leaders, sessions = _Looked(), _Looked()
    for number in range(50):
        for member in ("m", "n"):
            for connection in ("before", "here"):
                shares.sessions.begin((f"g{number}", member), [(_ID, 0)], connection, 1000)
        shares.lead(SharePartitionKey(f"g{number}", _ID, 0), parts[0])
    shares.sessions.begin(("other", "m"), [(_ID, 0)], "elsewhere", 1000)
    shares.lead(SharePartitionKey("other", _ID, 0), parts[0])
    assert [shares.sessions.of_group(name) for name in ("g7", "other", "none")] == [2, 1, 0]
    leaders.times = sessions.times = 0
    shares.connection_closed("before")
    assert len(leaders) == 51
    shares.connection_closed("here")
    assert [*leaders] == [SharePartitionKey("other", _ID, 0)]
    assert (leaders.times, sessions.times) == (1, 2), "the look of this test, and one for each connection"
    assert shares.sessions.of_group("g7") == 0
    shares.connection_closed("elsewhere")
    assert not shares._of_group and not shares._of_partition and not shares.sessions._by_group


def test_a_member_that_may_have_no_session_any_more_has_none() -> None:
    sessions = ShareSessions()
    sessions.begin(("g", "m"), [], "connection", 1)
    with pytest.raises(KafkaError, match="SHARE_SESSION_LIMIT_REACHED"):
        sessions.begin(("g", "m"), [], "connection", 0)
    assert sessions.of_group("g") == 0


def test_a_session_has_what_its_requests_add_less_what_they_forget() -> None:
    sessions = ShareSessions()
    keys = [(_ID, index) for index in range(4)]
    session = sessions.begin(("g", "m"), keys[:2], "connection", 1)
    assert sessions.resume(("g", "m"), 1, [keys[2], keys[0]], [keys[1], keys[3]]) is session
    assert list(session.partitions) == [keys[0], keys[2]]
    sessions.resume(("g", "m"), 2, [keys[3]], [keys[3]])
    assert list(session.partitions) == [keys[0], keys[2]], "what is added and forgotten is forgotten"
    for epoch in (0, 2, 4, -2):
        with pytest.raises(KafkaError) as raised:
            sessions.resume(("g", "m"), epoch)
        assert raised.value.code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    session.epoch = 0x7FFFFFFF
    sessions.resume(("g", "m"), 0x7FFFFFFF)
    assert session.epoch == 1


class Coordinated:
    """A simulated node with the topic `here`, whose only share coordinator answers by hand."""

    def __init__(self, **more: str) -> None:
        settings = {
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
        }
        self.machine = Machine(Random(1), settings | {name.replace("_", "."): value for name, value in more.items()})
        self.machine.start()
        self.machine.create_topic("here")
        assert self.machine.node is not None
        self.node = self.machine.node
        self.topic_id = self.node.image.topics["here"].topic_id
        self.key = SharePartitionKey("g", self.topic_id, 0)
        states, created = self.node.share_states, list[bool]()
        states.ensure_topic(lambda: created.append(True))
        self.machine.run(lambda: bool(created) and bool(states.loaded()))
        (self.driver,) = states.loaded()

    def ask(self, request: Any) -> None:
        answers: list[Any] = []
        self.driver.ask(request, 0, answers.append)
        self.machine.run(lambda: bool(answers))
        assert answers[0].results[0].partitions[0].error_code == 0

    def begin(self) -> None:
        state = initialize.PartitionData(partition=0, state_epoch=1, start_offset=0)
        data = initialize.InitializeStateData(topic_id=self.topic_id, partitions=[state])
        self.ask(initialize.InitializeShareGroupStateRequest(group_id="g", topics=[data]))

    def write(self, start_offset: int) -> None:
        change = write.PartitionData(partition=0, state_epoch=1, leader_epoch=0, start_offset=start_offset)
        told = write.WriteStateData(topic_id=self.topic_id, partitions=[change])
        self.ask(write.WriteShareGroupStateRequest(group_id="g", topics=[told]))


def test_the_log_of_share_states_is_cut_behind_what_is_needed() -> None:
    scene = Coordinated(share_coordinator_snapshot_update_records_per_snapshot="1")
    scene.begin()
    for offset in range(4):
        scene.write(offset)
    partition = scene.node.leader_of(SHARE_TOPIC, 0)
    assert partition.log.start_offset == 0
    scene.machine.run(lambda: partition.log.start_offset > 0)
    assert partition.log.start_offset == 4, "every second write is a snapshot, and the last one is needed"


@pytest.mark.parametrize("restarts", [False, True])
def test_the_share_state_of_a_deleted_topic_goes_with_it(restarts: bool) -> None:
    scene = Coordinated()
    scene.begin()
    assert list(scene.driver.machine.states) == [scene.key]
    deleted = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=scene.topic_id)], timeout_ms=1000)
    if restarts:
        # The coordinator is away while the topic goes.
        scene.node.share_states.resign(0)
    assert scene.machine.ask(deleted).responses[0].error_code == 0
    scene.machine.run(lambda: "here" not in scene.node.image.topics)
    if restarts:
        scene.node.share_states.lead(scene.driver.partition)
    scene.machine.run(lambda: bool(scene.node.share_states.loaded()))
    (driver,) = scene.node.share_states.loaded()
    scene.machine.run(lambda: not driver.machine.states)
    assert driver.machine.states == {}
