"""The log of slow requests: each part is the one that was slow, and what does not count does not count."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

import ottla
from ottla.broker.call.handler import Handler
from ottla.broker.log_output import _Json
from ottla.broker.observe.slow import SETTING, SlowRequests, parse
from ottla.client import Admin, ConfigResource, Producer, ResourceType
from ottla.kernel.error import KafkaError, OttlaError
from ottla.net.sent import SentMarks
from ottla.wire.api import API, ApiKey
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.metadata import MetadataRequest
from tests.broker.wire_client import WireClient
from tests.client.conftest import eventually

Lines = list[logging.LogRecord]


@pytest.fixture
def lines() -> Iterator[Lines]:
    found: Lines = []
    handler = logging.Handler()
    handler.emit = found.append  # type: ignore[assignment, method-assign]
    logger = logging.getLogger("ottla.request.slow")
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


def fields(lines: Lines, api: str) -> list[dict[str, Any]]:
    return [found for each in list(lines) if (found := getattr(each, "fields", {})).get("api") == api]


def test_a_commit_that_comes_late_is_the_wait(lines: Lines) -> None:
    with ottla.Node(settings={SETTING: "300"}) as node:
        with Producer(node.bootstrap_servers, client_id="billing\n" * 100) as producer:
            producer.send("orders", b"x").result()
            del lines[:]
            with node.faults.delay(ApiKey.PRODUCE, ms=400):
                producer.send("orders", b"x" * 100).result()
        [found] = fields(lines, "Produce")
        [line] = [each for each in lines if getattr(each, "fields", None) is found]
    assert found["handle_ms"] + found["wait_ms"] >= 399
    assert found["took_ms"] >= found["wait_ms"] + max(found["handle_ms"], found["queue_ms"], found["send_ms"])
    assert found["client_id"] == ("billing\n" * 100)[:80]
    assert (found["principal"], found["error"], found["client_left"]) == ("User:ANONYMOUS", "NONE", False)
    assert found["request_bytes"] > 100 < found["request_bytes"] + found["reply_bytes"]
    text = line.getMessage()
    assert text.startswith(f"slow request: Produce v{found['version']} took ") and "\n" not in text
    assert json.loads(_Json().format(line))["wait_ms"] == found["wait_ms"]


def _fetch(topic: str, wait_ms: int, position: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=position, partition_max_bytes=64 << 20)
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=64 << 20, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )


def test_a_fetch_that_waits_for_records_as_it_asked_is_not_slow(lines: Lines) -> None:
    with ottla.Node(settings={SETTING: "0"}) as node, WireClient(node.bootstrap_servers) as client:
        node.create_topic("quiet")
        with node.faults.watch([ApiKey.FETCH]) as watch:
            client.send(_fetch("quiet", 30_000), 11)
            eventually(lambda: bool(watch.requests))
        with Producer(node.bootstrap_servers) as producer:
            producer.send("quiet", b"x").result()
        client.receive_frame()
        eventually(lambda: bool(fields(lines, "Fetch")))
        [found] = fields(lines, "Fetch")
        assert found["wait_ms"] == 0 < found["took_ms"]
        del lines[:]
        with node.faults.delay(ApiKey.FETCH, ms=250):
            client.ask(_fetch("quiet", 10), 11)
        eventually(lambda: bool(fields(lines, "Fetch")))
        [found] = fields(lines, "Fetch")
    assert found["handle_ms"] + found["wait_ms"] >= 239


def test_a_reply_that_is_read_late_is_slow_in_sending(lines: Lines) -> None:
    with ottla.Node(settings={SETTING: "200"}) as node:
        node.create_topic("long")
        with Producer(node.bootstrap_servers, compression_type="none") as producer:
            for _ in range(32):
                producer.send("long", bytes(500_000)).result()
        del lines[:]
        with WireClient(node.bootstrap_servers) as client:
            client.send(_fetch("long", 0), 11)
            running = node._running()
            eventually(lambda: any(each._unsent_bytes for each in list(running.listeners[0].connections)))
            # As long as the fetch is not read, nothing is said of it; a client that answers in time has no line.
            with WireClient(node.bootstrap_servers) as other, node.faults.delay(ApiKey.METADATA, ms=300):
                other.ask(MetadataRequest(topics=[]), 12)
            assert not fields(lines, "Fetch")
            client.receive_frame()
            eventually(lambda: bool(fields(lines, "Fetch")))
        [found] = fields(lines, "Fetch")
    assert found["send_ms"] > 200
    assert found["reply_bytes"] > 16_000_000
    assert found["queue_ms"] + found["handle_ms"] + found["wait_ms"] < found["took_ms"] - 200


def test_a_client_that_left_has_its_line(lines: Lines) -> None:
    with ottla.Node(settings={SETTING: "0"}) as node:
        node.create_topic("left")
        with node.faults.hold(ApiKey.FETCH) as held:
            with WireClient(node.bootstrap_servers) as client:
                client.send(_fetch("left", 0), 11)
                held.wait()
            running = node._running()
            eventually(lambda: not running.listeners[0].connections)
        eventually(lambda: any(found["client_left"] for found in fields(lines, "Fetch")))


def test_lines_are_bounded_and_what_is_left_out_is_told(lines: Lines) -> None:
    with ottla.Node(settings={SETTING: "0"}) as node, WireClient(node.bootstrap_servers) as client:
        for _ in range(100):
            client.send(MetadataRequest(topics=[]), 12)
        for _ in range(100):
            client.receive_frame()
        eventually(lambda: sum(getattr(each, "left_out", 0) for each in lines) + len(fields(lines, "Metadata")) >= 100)
    told = [each for each in lines if hasattr(each, "fields")]
    seconds = sum(hasattr(each, "left_out") for each in lines)
    assert len(told) <= 10 * (seconds + 1)


def test_it_is_changed_while_the_node_runs_and_costs_nothing_when_off(lines: Lines) -> None:
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin:
        running = node._running()
        admin.list_topics()
        assert not running.dispatch.log.wanted
        assert all("slow" not in each.handler.function.__module__ for each in running.dispatch._routes.values())
        mine = ConfigResource(ResourceType.BROKER, str(running.node_id))
        admin.alter_configs({mine: {SETTING: "0"}})
        eventually(lambda: running.dispatch.log.slow is not None)
        admin.list_topics()
        eventually(lambda: bool(fields(lines, "Metadata")))
        assert admin.describe_config(mine)[SETTING].value == "0"
        with pytest.raises(KafkaError, match=f"Invalid value many for configuration {SETTING}: expected 0 to"):
            admin.alter_config(mine, {SETTING: "many"})
        assert running.dispatch.log.slow is not None
        admin.alter_configs({mine: {SETTING: "-1"}})
        eventually(lambda: running.dispatch.log.slow is None)
        assert not running.dispatch.log.wanted


def test_a_request_that_came_before_the_setting_is_answered_without_times(lines: Lines) -> None:
    seen: list[tuple[object, object]] = []

    def function(*asked: object) -> str:
        seen.append(asked)  # type: ignore[arg-type]
        return "answer"

    call = Mock(times=None)
    handler = Handler(API[ApiKey.METADATA], function, None)
    assert SlowRequests(Mock(), 0).around(handler).function(call, "request") == "answer"
    assert seen == [(call, "request")] and not lines


@pytest.mark.parametrize("text", ["many", "-2", "nan", "1e300", ""])
def test_a_value_that_is_none_stops_the_start(text: str) -> None:
    with pytest.raises(OttlaError, match=r"slow\.request\.log\.ms: .* \(expected 0 to 86400000, or -1\)"):
        ottla.Node(settings={SETTING: text}).start()
    assert parse("2.5") == 2.5
    assert parse("-1") is None


def test_marks_are_reached_in_order_and_at_the_end() -> None:
    marks, said = SentMarks(), list[str]()

    def say(text: str) -> Callable[[], None]:
        return lambda: said.append(text)

    marks.add(0, say("at once"))
    marks.add(10, say("ten"))
    marks.sent(4)
    marks.add(9, say("thirteen"))
    marks.sent(6)
    assert said == ["at once", "ten"]
    marks.sent(2)
    assert said == ["at once", "ten"]
    marks.sent(1)
    marks.add(5, say("left"))
    assert said == ["at once", "ten", "thirteen"]
    marks.end()
    assert said == ["at once", "ten", "thirteen", "left"]
