"""The HTTP server of a program under requests that are wrong, hostile or slow."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from ottla.flow.serde import JSON, STRING
from ottla.flow.store.spec import StoreSpec
from ottla.spark.streams import http
from ottla.spark.streams.http import REQUESTS_MAX, HttpServer, HttpSources
from ottla.spark.streams.query import StoreView


class View:
    """A store whose keys are objects of JSON."""

    key_serde = JSON
    staleness = None

    def get(self, key: Any) -> Any:
        if key == "odd":
            return {(1, 2): "no key of JSON"}
        return key


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    monkeypatch.setattr(http, "PATIENCE_S", 0.3)
    sources = HttpSources(lambda: "", dict, list, lambda name: cast(StoreView, View()))
    made = HttpServer(0, sources)
    yield made
    made.close()


def connect(server: HttpServer) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), 30)


def get(server: HttpServer, target: str) -> tuple[int, Any]:
    """The status and the body, (0, None) from a server that has no turn for the request."""
    with connect(server) as line:
        line.sendall(f"GET {target} HTTP/1.1\r\n\r\n".encode())
        with line.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    return (int(head.split()[1]), json.loads(body)) if head else (0, None)


@pytest.mark.parametrize(
    ("target", "status", "told"),
    [
        ("/stores/s/key/" + "[" * 60_000, 200, None),
        ("/stores/s/key/odd", 500, "TypeError: keys must be str, int, float, bool or None, not tuple"),
        ("http://[/stores", 400, "Invalid IPv6 URL"),
    ],
)
def test_a_request_that_is_wrong_gets_an_answer(server: HttpServer, target: str, status: int, told: str | None) -> None:
    found, body = get(server, target)
    assert found == status
    if told is not None:
        assert body == {"error": told}


def test_an_answer_has_a_bound_of_staleness() -> None:
    page = {"entries": [["YQ==", "eyJuIjo1fQ=="]], "more": False, "lag": 5, "counted_ms_ago": 7}
    spec = StoreSpec("totals", "key_value", STRING, JSON)
    sources = HttpSources(
        lambda: "", dict, list, lambda name: StoreView(spec, (None, None), lambda asked: {0: {"tasks": {"0_0": page}}})
    )
    server = HttpServer(0, sources)
    try:
        behind = {"records": 5, "counted_ms_ago": 7}
        for bound in ("", "?max_behind=5"):
            assert get(server, f"/stores/totals/key/a{bound}") == (
                200,
                {"key": "a", "value": {"n": 5}, "staleness": behind},
            )
        for path in ("key/a", "range", ""):
            status, body = get(server, f"/stores/totals/{path}?max_behind=4".replace("/?", "?"))
            assert (status, body["error"]) == (503, "store totals is 5 input records behind (max_behind: 4); try again")
        assert get(server, "/stores/totals?max_behind=few")[0] == 400
    finally:
        server.close()


def test_clients_that_send_byte_by_byte_keep_no_turn(server: HttpServer) -> None:
    slow = [connect(server) for _ in range(REQUESTS_MAX)]
    ended = threading.Event()

    def trickle() -> None:
        while not ended.wait(0.05):
            for line in slow:
                with contextlib.suppress(OSError):
                    line.sendall(b"G")

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while (found := get(server, "/state")) == (0, None):
            assert time.monotonic() < deadline
        assert found == (200, {})
    finally:
        ended.set()
        thread.join()
        for line in slow:
            line.close()


def test_the_end_of_a_program_waits_for_no_client() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def state() -> dict[str, Any]:
        asked.set()
        go_on.wait(50)
        return {}

    before = set(threading.enumerate())
    server = HttpServer(0, HttpSources(lambda: "", state, list, lambda name: cast(StoreView, View())))
    try:
        with connect(server) as line:
            line.sendall(b"GET /state HTTP/1.1\r\n\r\n")
            assert asked.wait(50)
            # The server's own thread, that of the request, and the one that watches its time.
            begun = set(threading.enumerate()) - before
            assert len(begun) == 3
            assert all(thread.daemon for thread in begun)
            go_on.set()
            line.makefile("rb").read()
    finally:
        go_on.set()
        server.close()


def test_a_server_whose_turns_are_all_taken_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PATIENCE_S", 0.3)
    asked, go_on = threading.Event(), threading.Event()

    def state() -> dict[str, Any]:
        asked.set()
        go_on.wait(50)
        return {}

    server = HttpServer(0, HttpSources(lambda: "", state, list, lambda name: cast(StoreView, View())))
    lines = [connect(server) for _ in range(REQUESTS_MAX + 2)]
    try:
        for line in lines:
            line.sendall(b"GET /state HTTP/1.1\r\n\r\n")
        assert asked.wait(30)
        closing = threading.Thread(target=server.close, daemon=True)
        closing.start()
        # A request waits longer.
        closing.join(20)
        assert not closing.is_alive()
    finally:
        go_on.set()
        for line in lines:
            line.close()
