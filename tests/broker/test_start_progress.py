"""What a start says of the logs that it opens: nothing if that is quick, and a line now and then if it is not."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker import node as broker_node
from ottla.broker.node import BrokerNode
from tests.broker.disk_scene import Scene


@pytest.mark.parametrize(
    ("log_ms", "told"), [(0, 0), (broker_node._PROGRESS_MS // 2, 2), (broker_node._PROGRESS_MS, 4)]
)
def test_a_start_that_takes_long_tells_how_far_it_is(log_ms: int, told: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.create(4)
    scene.machine.stop()
    clock = scene.machine.clock
    clock.advance(100 * broker_node._PROGRESS_MS)
    lines: list[str] = []
    report = BrokerNode._report_progress

    def reports(node: BrokerNode, opening: Any) -> None:
        node.on_progress = lines.append
        clock.advance(log_ms)
        report(node, opening)

    monkeypatch.setattr(BrokerNode, "_report_progress", reports)
    scene.machine.start()
    assert len(lines) == told
