"""Look-ups by time in batches that are much larger than what was sent: beside the loop, and one of them at a time."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from ottla.broker.partitions.look_ups import LookUps
from ottla.kernel.error import ErrorCode
from ottla.log.lookup import Lookup, Unpack
from ottla.sim.clock import SimClock
from ottla.sim.loop import SimLoop
from ottla.wire.api import ApiKey
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import CHECKED, assemble
from ottla.wire.codec import Codec, compress
from ottla.wire.compile import encode
from ottla.wire.header import RequestHeader, request_header_version
from tests.broker.disk_scene import TOPIC, Scene

_COUNT = 60_000
_LATER_MS = 32


def _batch(now_ms: int) -> bytes:
    """A kilobyte that is 660 KB plain; only the last record is of a later time."""
    record = b"\x14\x00%b\x00\x01\x08vvvv\x00"
    body = record % b"\x00" * (_COUNT - 1) + record % bytes([2 * _LATER_MS])
    checked = CHECKED.pack(Codec.ZSTD, _COUNT - 1, now_ms, now_ms + _LATER_MS, -1, -1, -1, _COUNT)
    return assemble(0, -1, checked, compress(Codec.ZSTD, body))


def _produce(scene: Scene, partition: int, now_ms: int) -> None:
    data = PartitionProduceData(index=partition, records=_batch(now_ms))
    answer = scene.ask(ProduceRequest(acks=1, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def _look(partition: int, timestamp: int) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=partition, timestamp=timestamp)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])


def _send(scene: Scene, key: ApiKey, request: Any, version: int) -> tuple[Any, list[bytes]]:
    """(a connection of its own, its answers)."""
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="c")
    replies: list[bytes] = []
    connection = scene.machine.connect(replies.append, lambda: None)
    connection.send(encode(header, request_header_version(key, version)) + encode(request, version))
    return connection, replies


class _Counted:
    """How many batches' plain bytes are there now, were there at most, and were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = self.made = 0
        counted = self

        class Counting(Unpack):
            __slots__ = ()

            def __setattr__(self, name: str, value: Any) -> None:
                if name == "plain":
                    there = getattr(self, "plain", None) is not None
                    counted.now += (value is not None) - there
                    counted.made += value is not None
                    counted.most = max(counted.most, counted.now)
                super().__setattr__(name, value)

        monkeypatch.setattr("ottla.log.lookup.Unpack", Counting)


def test_of_many_who_look_one_batch_is_unpacked_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.create(partitions=2)
    now_ms = scene.machine.clock.now_ms()
    for partition in (0, 1):
        _produce(scene, partition, now_ms)
    counted = _Counted(monkeypatch)
    looks = [_send(scene, ApiKey.LIST_OFFSETS, _look(each % 2, now_ms + _LATER_MS), 7) for each in range(6)]
    scene.machine.run(lambda: counted.made > 0)
    _, others = _send(scene, ApiKey.METADATA, MetadataRequest(topics=None), 9)
    scene.machine.run(lambda: bool(others))
    assert not any(replies for _, replies in looks), "whoever asks for less is answered meanwhile"
    # One goes that waits for its turn, and one that has it.
    for gone in (looks.pop(3), looks.pop(0)):
        gone[0].close("its client goes")
    scene.machine.run(lambda: all(replies for _, replies in looks))
    assert all(replies for _, replies in looks)
    assert (counted.most, counted.now) == (1, 0)
    assert counted.made <= 6
    (found,) = scene.ask(_look(1, now_ms + _LATER_MS), 7).topics[0].partitions
    assert (found.error_code, found.timestamp) == (ErrorCode.NONE, now_ms + _LATER_MS)


@pytest.mark.parametrize("stops", [False, True])
def test_a_look_up_of_the_nodes_own_goes_in_turns(stops: bool) -> None:
    """A share group that begins at a time looks so."""
    scene = Scene()
    steps: list[int] = []
    found: list[Any] = []

    def look() -> Lookup:
        for number in range(3):
            steps.append(number)
            yield None
        return (1, 2, 3)

    scene.node.look_ups.run(look(), found.append, lambda: stops and len(steps) == 2)
    assert (steps, found) == ([0], [])
    scene.machine.settle()
    assert (steps, found) == (([0, 1], []) if stops else ([0, 1, 2], [(1, 2, 3)]))


def test_a_look_up_that_is_stopped_takes_no_further_step_and_tells_nothing() -> None:
    loop = SimLoop(SimClock(), Random(1))
    looks = LookUps(cast(Any, loop), cast(Any, None))
    stopped: list[bool] = []
    told: list[Any] = []
    steps: list[str] = []

    def look() -> Any:
        try:
            for step in ("first", "second", "third"):
                steps.append(step)
                yield None
        finally:
            steps.append("closed")

    looks.run(cast(Any, look()), told.append, lambda: bool(stopped))
    loop.turn()
    assert steps == ["first", "second"]
    stopped.append(True)
    while loop.turn():
        pass
    assert (steps, told) == (["first", "second", "closed"], [])
