"""How an embedded node ends: by SIGTERM, in a fork, by itself; and what is refused before it has begun."""

from __future__ import annotations

import os
import signal
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

import ottla
from ottla.embedded import node as module
from ottla.kernel.error import OttlaError


def test_what_a_node_has_before_it_starts() -> None:
    node = ottla.Node()
    with pytest.raises(OttlaError, match=r"^the node has no directory before it starts$"):
        _ = node.data
    with pytest.raises(OttlaError, match=r"^the node is not running; use `with ottla\.Node\(\)"):
        _ = node.bootstrap_servers
    assert repr(node) == "<ottla.Node, not running>"
    assert ottla.Node("/some/where").data == "/some/where"
    with pytest.raises(ValueError, match=r"^time does not go back$"):
        node.clock.advance(-1)
    node.clock.advance(0)
    # A node that was not started has nothing to stop.
    node.stop()


def test_a_node_runs_once_and_says_where() -> None:
    with ottla.Node() as node:
        assert repr(node) == f"<ottla.Node on {node.bootstrap_servers}, data in {node.data}>"
        with pytest.raises(OttlaError, match=r"^this node is running already$"):
            node.start()
        data = node.data
        assert os.path.isdir(data)

        def fails() -> None:
            raise ValueError("on its thread")

        with pytest.raises(ValueError, match="on its thread"):
            node._on_loop(fails)
        assert id(node) in module._started
    assert not os.path.exists(data)
    assert id(node) not in module._started


def test_a_fork_does_not_stop_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    with ottla.Node() as node:
        data = node.data
        with monkeypatch.context() as fork:
            fork.setattr(module, "os", SimpleNamespace(getpid=lambda: -1))
            node.stop()
        assert os.path.isdir(data)
        assert node.bootstrap_servers


def test_sigterm_stops_every_node_and_then_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Mock(stop=Mock(side_effect=OttlaError("late"))), Mock()
    monkeypatch.setattr(module, "_started", {1: first, 2: second})
    did = Mock()
    monkeypatch.setattr(module, "os", SimpleNamespace(kill=did.kill, getpid=lambda: 77))
    names = {name: getattr(signal, name) for name in ("SIGTERM", "SIG_DFL")}
    monkeypatch.setattr(module, "signal", SimpleNamespace(signal=did.signal, **names))
    module._sigterm(signal.SIGTERM, None)
    assert (first.stop.call_count, second.stop.call_count) == (1, 1)
    assert did.mock_calls == [call.signal(signal.SIGTERM, signal.SIG_DFL), call.kill(77, signal.SIGTERM)]


@pytest.mark.parametrize(
    ("handler", "in_main", "others", "taken", "given_back"),
    [
        ("default", True, False, True, False),
        ("default", False, False, False, False),
        ("the program's", True, False, False, False),
        ("ours", True, False, False, True),
        ("ours", True, True, False, False),
        ("ours", False, False, False, False),
    ],
)
def test_sigterm_is_taken_from_the_default_and_given_back_by_the_last_node(
    monkeypatch: pytest.MonkeyPatch, handler: str, in_main: bool, others: bool, taken: bool, given_back: bool
) -> None:
    now = {"default": signal.SIG_DFL, "ours": module._sigterm, "the program's": print}[handler]
    names = {name: getattr(signal, name) for name in ("SIGTERM", "SIG_DFL")}
    fake = SimpleNamespace(signal=Mock(), getsignal=lambda _: now, **names)
    monkeypatch.setattr(module, "signal", fake)
    main = threading.main_thread()
    threads = SimpleNamespace(main_thread=lambda: main, current_thread=lambda: main if in_main else None)
    monkeypatch.setattr(module, "threading", threads)
    monkeypatch.setattr(module, "_started", {})
    node: Any = object()
    module._stop_at_sigterm(node)
    assert fake.signal.call_args_list == ([call(signal.SIGTERM, module._sigterm)] if taken else [])
    assert module._started == {id(node): node}
    fake.signal.reset_mock()
    if not others:
        module._started.clear()
    module._leave_sigterm()
    assert fake.signal.call_args_list == ([call(signal.SIGTERM, signal.SIG_DFL)] if given_back else [])


def test_a_temporary_directory_is_not_synced() -> None:
    disk = module._TemporaryDisk()
    assert disk.sync_directory("/nowhere") is None  # type: ignore[func-returns-value]
    assert disk.file is module._TemporaryFile
