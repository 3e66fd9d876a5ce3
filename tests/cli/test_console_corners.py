"""Kafka's console tools and the verifiable producer where records fail, are too many, or do not come."""

from __future__ import annotations

import io
import json
import sys
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from ottla.cli.kafka.perf import verifiable_producer
from ottla.cli.kafka.program.tool import Failed
from ottla.cli.kafka.records import console_producer, console_share_consumer
from ottla.client import Acknowledge, ErrorCode, KafkaError

REFUSED = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not you")
WHY = "org.apache.kafka.common.errors.TopicAuthorizationException: not you"


class Given(dict[str, Any]):
    """Options with their defaults."""

    def __contains__(self, name: object) -> bool:
        return bool(dict.get(self, str(name)))


class Formatter:
    """Writes a record's value; one whose value is b"bad" cannot be shown."""

    def __init__(self) -> None:
        self.shown = 0

    def write(self, record: Any, out: Any) -> None:
        self.shown += 1
        if record.value == b"bad":
            raise ValueError("it does not read")
        out.write(record.value)


class Clock:
    """Seconds that pass while a consumer polls."""

    def __init__(self) -> None:
        self.now = 50.0

    def monotonic(self) -> float:
        return self.now


def show(
    monkeypatch: pytest.MonkeyPatch, polls: list[list[bytes]], **given: Any
) -> tuple[bytes, list[tuple[bytes, str]], list[float]]:
    """(what is written, how each record is acknowledged, the waits of the polls)."""
    clock, out, acknowledged, waits = Clock(), io.BytesIO(), list[tuple[bytes, str]](), list[float]()
    left = iter(polls)

    def poll(seconds: float) -> list[Any]:
        waits.append(round(seconds, 3))
        records = next(left, None)
        if records is None:
            raise KeyboardInterrupt
        clock.now += 0 if records else seconds
        return [SimpleNamespace(value=value) for value in records]

    consumer: Any = SimpleNamespace(
        poll=poll, acknowledge=lambda record, how: acknowledged.append((record.value, how.name))
    )
    monkeypatch.setattr(console_share_consumer, "time", clock)
    stdout = SimpleNamespace(buffer=out)
    monkeypatch.setattr(console_share_consumer, "sys", SimpleNamespace(stdout=stdout, stderr=sys.stderr))
    options: Any = Given({"max-messages": -1, "timeout-ms": -1, **given})
    formatter: Any = Formatter()
    try:
        console_share_consumer._show(options, consumer, formatter)
    except KeyboardInterrupt:
        waits.append(-1)
    return out.getvalue(), acknowledged, waits


def test_records_beyond_the_count_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    out, acknowledged, _ = show(monkeypatch, [[b"1"], [b"2", b"3", b"4"]], **{"max-messages": 2})
    assert out == b"12"
    assert acknowledged == [(b"1", "ACCEPT"), (b"2", "ACCEPT"), (b"3", "RELEASE"), (b"4", "RELEASE")]
    out, acknowledged, _ = show(monkeypatch, [[b"1", b"2"], [b"3"]], **{"max-messages": 2})
    assert [each[1] for each in acknowledged] == ["ACCEPT", "ACCEPT"]


@pytest.mark.parametrize(("option", "word"), [("reject", "REJECT"), ("release", "RELEASE"), ("other", "ACCEPT")])
def test_records_are_acknowledged_as_that_is_said(monkeypatch: pytest.MonkeyPatch, option: str, word: str) -> None:
    _, acknowledged, waits = show(monkeypatch, [[b"1"]], **{option: True})
    assert acknowledged == [(b"1", word)]
    assert waits[-1] == -1, "without a count it goes on"


def test_a_record_that_cannot_be_shown_ends_it_or_is_rejected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Failed, match=r"^it does not read$"):
        show(monkeypatch, [[b"1", b"bad", b"2"]])
    out, acknowledged, _ = show(monkeypatch, [[b"1", b"bad", b"2"]], **{"reject-message-on-error": True})
    assert (out, acknowledged) == (b"12", [(b"1", "ACCEPT"), (b"bad", "REJECT"), (b"2", "ACCEPT")])
    assert capsys.readouterr().err.startswith("ERROR Error processing message, rejecting this message: ")


def test_a_reader_that_gets_nothing_for_so_long_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    poll_s = console_share_consumer._POLL_S
    quiet: list[list[bytes]] = [[]] * 100
    _, _, waits = show(monkeypatch, [[b"1"], *quiet], **{"timeout-ms": 1000})
    assert sum(waits[1:]) == pytest.approx(1.0)
    assert max(waits) <= poll_s
    why = "org.apache.kafka.common.errors.TimeoutException"
    assert capsys.readouterr().err == f"ERROR Error processing message, terminating consumer process: {why}\n"
    _, _, waits = show(monkeypatch, quiet, **{"timeout-ms": 0})
    assert waits == [0.0]
    _, _, waits = show(monkeypatch, quiet[:5])
    assert waits == [round(poll_s, 3)] * 6 + [-1]


# ---- kafka-console-producer


def lines_of(monkeypatch: pytest.MonkeyPatch, *lines: str) -> Any:
    monkeypatch.setattr(console_producer, "_lines", lambda: iter(lines))
    reader: Any = SimpleNamespace(
        records=lambda found: [SimpleNamespace(value=line.encode(), key=None, headers=[]) for line in found]
    )
    return reader


@pytest.mark.parametrize("sync", [True, False])
def test_a_record_that_is_refused_ends_a_producer_that_waits_for_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sync: bool
) -> None:
    reader = lines_of(monkeypatch, "a", "b", "c")
    producer = Mock()
    waits = Mock()
    producer.send.side_effect = [waits, REFUSED, waits]
    if sync:
        with pytest.raises(KafkaError):
            console_producer._write(producer, "t", reader, sync=True)
    else:
        console_producer._write(producer, "t", reader, sync=False)
    assert producer.send.call_args_list[0] == call("t", b"a", None, headers=None)
    assert (producer.send.call_count, waits.result.call_count) == ((2, 1) if sync else (3, 0))
    assert producer.flush.called is not sync
    told = f"ERROR Error when sending message to topic t with error: {WHY}\n"
    assert capsys.readouterr().err == ("" if sync else told)
    producer = Mock()
    producer.flush.side_effect = REFUSED
    console_producer._flush(producer, "t")
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(("stdin", "stdout", "prompts"), [(True, True, 3), (True, False, 0), (False, True, 0)])
def test_a_terminal_has_a_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stdin: bool, stdout: bool, prompts: int
) -> None:
    typed = SimpleNamespace(buffer=io.BytesIO(b"a\n\xff"), isatty=lambda: stdin)
    shown = SimpleNamespace(isatty=lambda: stdout)
    monkeypatch.setattr(console_producer, "sys", SimpleNamespace(stdin=typed, stdout=shown))
    assert list(console_producer._lines()) == ["a\n", "\ufffd"]
    assert capsys.readouterr().out == ">" * prompts


# ---- kafka-verifiable-producer


@pytest.fixture
def events() -> tuple[Any, list[dict[str, Any]]]:
    told: list[dict[str, Any]] = []
    return SimpleNamespace(tell=lambda name, **more: told.append({"name": name, **more})), told


def sending(events: Any, producer: Any, **words: Any) -> verifiable_producer._Sending:
    given: Any = {
        "topic": "t",
        "message-create-time": -1,
        "throughput": -1,
        "repeating-keys": None,
        "value-prefix": None,
        "max-messages": 3,
        **words,
    }
    return verifiable_producer._Sending(producer, given, events)


def test_each_record_is_told_when_it_is_acknowledged_or_fails(events: Any) -> None:
    tell, told = events
    answers = iter([(SimpleNamespace(partition=1, offset=7), None), (None, REFUSED)])
    producer = Mock()
    later = Mock(when_done=lambda done: done(*next(answers)))
    producer.send.side_effect = [later, later, REFUSED]
    sent = sending(tell, producer, **{"value-prefix": 9, "repeating-keys": 2})
    sent.send_all(threading.Event())
    assert (sent.sent, sent.acked) == (3, 1)
    assert [each.args for each in producer.send.call_args_list] == [
        ("t", "9.0", "0"),
        ("t", "9.1", "1"),
        ("t", "9.2", "0"),
    ]
    failed = {"name": "producer_send_error", "topic": "t", "message": "not you"}
    failed["exception"] = "class org.apache.kafka.common.errors.TopicAuthorizationException"
    assert told == [
        {"name": "producer_send_success", "key": "0", "value": "9.0", "topic": "t", "partition": 1, "offset": 7},
        {**failed, "key": "1", "value": "9.1"},
        {**failed, "key": "0", "value": "9.2"},
    ]
    assert json.dumps(told)
    producer.flush.side_effect = REFUSED
    sent.finish()
    assert producer.flush.called


def test_the_time_of_records_goes_on_from_the_one_that_is_given(events: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([1000, 1010, 1030, 1060])
    clock = SimpleNamespace(time_ns=lambda: next(moments) * 1_000_000)
    monkeypatch.setattr(verifiable_producer, "time", clock)
    producer = Mock()
    sent = sending(events[0], producer, **{"message-create-time": 5})
    sent.send_all(threading.Event())
    # As Apache's: each time is later by all that has passed since the beginning.
    assert [each.kwargs for each in producer.send.call_args_list] == [{"timestamp": at} for at in (5, 15, 45)]
    assert [each.args[1:] for each in producer.send.call_args_list] == [("0", None), ("1", None), ("2", None)]
    producer = Mock()
    moments = iter([1000] * 9)
    stopped = threading.Event()
    stopped.set()
    sending(events[0], producer).send_all(stopped)
    assert not producer.send.called


def test_a_share_consumers_word_is_one_of_three() -> None:
    words = [console_share_consumer._word(Given({name: True})) for name in ("reject", "release", "x")]  # type: ignore[arg-type]
    assert words == [Acknowledge.REJECT, Acknowledge.RELEASE, Acknowledge.ACCEPT]
