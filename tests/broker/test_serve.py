"""The frame of a node's process: its lines, its signals, and its end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker import serve
from ottla.kernel.error import OttlaError
from ottla.settings.server.settings import ServerSettings
from tests.controller.scene import SETTINGS

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Node:
    """A node that is ready at once unless `waits`; `then` is what happens while it serves."""

    node_id = 1

    def __init__(self, then: Callable[[_Node], None], *, waits: bool = False) -> None:
        self.then, self.waits = then, waits
        self.told: list[Any] = []
        self.done: Callable[[], None]
        self.on_ready: Callable[[], None]
        self.on_progress: Callable[[str], None]
        self.on_failure: Callable[[str], None]
        self.loop: asyncio.AbstractEventLoop

    def made(self, kind: str) -> Callable[..., _Node]:
        def make(settings: ServerSettings, loop: asyncio.AbstractEventLoop) -> _Node:
            self.told.append(kind)
            self.loop = loop
            return self

        return make

    def bound(self) -> list[Any]:
        return [SimpleNamespace(host="h", port=9092), SimpleNamespace(host="i", port=9093)]

    def open(self, wait_seconds: float) -> None:
        self.told.append(("open", gc.isenabled()))
        if not self.waits:
            self.on_ready()
        self.loop.call_soon(self.then, self)

    def stop(self, done: Callable[[], None]) -> None:
        self.told.append("stop")
        self.done = done

    def close(self) -> None:
        self.told.append("close")


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a process does to itself is undone."""
    for name in ("set_limits", "tell_on_signal", "_load_rest"):
        monkeypatch.setattr(serve, name, lambda: None)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    gc.enable()
    asyncio.set_event_loop(None)


def _run(node: _Node, monkeypatch: pytest.MonkeyPatch, **more: str) -> tuple[int, list[str]]:
    """The exit code, and the lines."""
    monkeypatch.setattr(serve, "BrokerNode", node.made("broker"))
    monkeypatch.setattr(serve, "controller_node", SimpleNamespace(ControllerNode=node.made("controller")))
    said: list[str] = []
    settings = ServerSettings.parse(SETTINGS | {"log.dirs": "/a,/b"} | more)
    try:
        return serve.run(settings, said.append, started_at=0.0), said
    finally:
        assert node.loop.is_closed()
        node.told += said


def _kill(number: int) -> None:
    os.kill(os.getpid(), number)


def _once_stopping(node: _Node, then: Callable[[], None]) -> None:
    """Do this when the signal has reached the node, which takes the loop some turns."""
    if "stop" in node.told:
        then()
    else:
        node.loop.call_soon(_once_stopping, node, then)


@pytest.mark.parametrize("number", _SIGNALS)
def test_a_node_says_when_it_serves_and_stops_cleanly_on_a_signal(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def serves(node: _Node) -> None:
        _kill(number)
        _once_stopping(node, lambda: node.done())

    node = _Node(serves)
    code, (ready, stopped) = _run(node, monkeypatch)
    assert code == 0
    assert ready.startswith("ottla: node 1 ready on h:9092, i:9093 in ") and ready.endswith(" ms, data in /a, /b")
    assert stopped == "ottla: node 1 stopped"
    assert node.told[:4] == ["broker", ("open", False), "stop", "close"]
    assert sys.dont_write_bytecode, "a full disk would be left with files that no start can read"


def test_a_second_signal_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def serves(node: _Node) -> None:
        _kill(signal.SIGTERM)
        _once_stopping(node, lambda: _kill(signal.SIGTERM))

    node = _Node(serves)
    assert _run(node, monkeypatch)[0] == 0
    assert node.told[:4] == ["broker", ("open", False), "stop", "close"]


def test_a_node_that_fails_closes_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    node = _Node(lambda node: node.on_failure("the disk is full"))
    with pytest.raises(OttlaError, match=r"^the node stopped: the disk is full$"):
        _run(node, monkeypatch)
    assert node.told[:3] == ["broker", ("open", False), "close"] and "ottla: node 1 stopped" not in node.told


def test_a_node_that_waits_for_others_collects_garbage_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    def waits(node: _Node) -> None:
        node.told.append(("waits", gc.isenabled()))
        node.on_progress("waits for node 2")
        node.on_failure("enough")

    node = _Node(waits, waits=True)
    with pytest.raises(OttlaError, match="enough"):
        _run(node, monkeypatch)
    assert node.told[1:3] == [("open", False), ("waits", True)] and node.told[-1] == "ottla: waits for node 2"

    def serves(node: _Node) -> None:
        node.told.append(("serves", gc.isenabled()))
        node.on_failure("enough")

    node = _Node(serves)
    with pytest.raises(OttlaError, match="enough"):
        _run(node, monkeypatch)
    assert ("serves", False) in node.told, "until the node has served for a second"


def test_a_controller_is_a_node_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    node = _Node(lambda node: node.on_failure("enough"))
    texts = {"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:9093"}
    texts |= {"controller.listener.names": "CONTROLLER"}
    with pytest.raises(OttlaError, match="enough"):
        _run(node, monkeypatch, **texts)
    assert node.told[0] == "controller"


def test_the_collector_leaves_out_what_the_start_made() -> None:
    threshold, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.disable()
    try:
        serve.tune_collector()
        assert gc.isenabled() and gc.get_threshold() == (50_000, 5, 400) and gc.get_freeze_count() > frozen
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()


def test_a_node_without_descriptors_for_its_modules_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load_all() -> Iterator[None]:
        yield
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(serve, "load_all", load_all)
    serve._load()
    gc.unfreeze()
    assert "Not every module could be loaded ahead: [Errno 24] Too many open files." in caplog.text
