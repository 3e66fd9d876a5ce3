"""Questions to share coordinators: they are asked again while the node runs, and not after it has closed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ottla.broker.share.persister import Persister
from ottla.kernel.ids import Uuid
from ottla.net.peer import Disconnected
from ottla.share.state import SharePartitionKey

_KEY = SharePartitionKey("group", Uuid(b"t" * 16), 0)
_TOPIC, _HERE, _ELSEWHERE = "__share_group_state", 1, 2


class _Planned:
    """A timer."""

    def __init__(self, due: list[_Planned], seconds: float, call: Callable[[], None]) -> None:
        self.due, self.seconds, self.call = due, seconds, call
        due.append(self)

    def cancel(self) -> None:
        self.due.remove(self)


class _Scene:
    """A persister whose coordinator is another broker; the test gives that broker's answers and calls what is due."""

    def __init__(self) -> None:
        self.due: list[_Planned] = []
        self.asked: list[Callable[[Any], None]] = []
        self.told: list[Any] = []
        partition = SimpleNamespace(leader=_ELSEWHERE)
        runtime: Any = SimpleNamespace(
            node_id=_HERE,
            loop=self,
            image=SimpleNamespace(topics={_TOPIC: SimpleNamespace(partitions=[partition])}),
        )
        coordinators: Any = SimpleNamespace(topic=_TOPIC, ensure_topic=lambda ask: ask(), partition_of=lambda _: 0)
        peers: Any = SimpleNamespace(ask=lambda broker, request, done: self.asked.append(done), close=lambda: None)
        leadership: Any = None
        self.persister = Persister(runtime, coordinators, leadership, peers)
        self.persister.summary(_KEY, self.told.append)

    def call_later(self, seconds: float, call: Callable[[], None]) -> _Planned:
        return _Planned(self.due, seconds, call)

    def disconnect(self) -> None:
        self.asked[-1](Disconnected("the connection broke", was_sent=True))


def test_a_question_whose_connection_broke_is_asked_again() -> None:
    scene = _Scene()
    scene.disconnect()
    (planned,) = scene.due
    assert planned.seconds == 0.1 and len(scene.asked) == 1
    planned.call()
    assert len(scene.asked) == 2 and scene.told == []


def test_nothing_is_asked_again_once_the_node_has_closed() -> None:
    scene = _Scene()
    scene.persister.close()
    # Closing the connections tells those who wait in the next turn of the loop.
    scene.disconnect()
    assert scene.due == [] and scene.told == []
    waits = _Scene()
    waits.disconnect()
    waits.persister.close()
    assert waits.due == []
