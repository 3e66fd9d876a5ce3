"""How a tool ends, and what it takes for a broker."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import click
import pytest

from ottla.cli import process
from ottla.cli.reach import reach
from ottla.client import ErrorCode, KafkaError
from ottla.kernel.error import OttlaError

# ---- how a tool ends


@pytest.mark.parametrize(
    ("error", "code", "err"),
    [
        (OttlaError("no"), 1, "ottla: no\n"),
        (KafkaError(ErrorCode.GROUP_ID_NOT_FOUND), 1, "ottla: there is no such group\n"),
        (OSError(28, "No space left", "/x"), 1, "ottla: /x: No space left\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_a_tool_ends_with_one_line_and_a_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, err: str
) -> None:
    discarded = Mock()
    monkeypatch.setattr(process, "discard", discarded)
    with pytest.raises(SystemExit) as left:
        process.run_and_exit(Mock(side_effect=error))
    assert (left.value.code, discarded.called) == (code, isinstance(error, BrokenPipeError))
    assert capsys.readouterr() == ("", err)


@pytest.mark.parametrize(
    ("code", "error", "left_with", "err"),
    [
        (None, None, 0, ""),
        (2, None, 2, ""),
        (0, OSError(28, "No space left"), 1, "ottla: No space left\n"),
        (0, BrokenPipeError(), 0, ""),
        (3, OSError(28, "No space left"), 3, ""),
    ],
)
def test_last_words_that_cannot_be_written_make_a_tool_fail(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int | None,
    error: OSError | None,
    left_with: int,
    err: str,
) -> None:
    monkeypatch.setattr(process, "finish", lambda: error)
    with pytest.raises(SystemExit) as left:
        process.run_and_exit(lambda: code)
    assert left.value.code == left_with
    assert capsys.readouterr() == ("", err)


# ---- what answers at an address

API_VERSIONS = bytes.fromhex("0000000a 0012 0000 6f74746c ffff")
METADATA = bytes.fromhex("0000000e 0003 0001 6f74746c ffff 00000000")


def answering(*answers: bytes | None) -> tuple[str, threading.Thread]:
    """A server of one connection: each answer follows a request; None closes it."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server, suppress(ConnectionError), server.accept()[0] as connection:
            for answer in answers:
                connection.recv(4096)
                if answer is None:
                    return
                connection.sendall(answer)
            connection.recv(4096)

    thread = threading.Thread(target=serve)
    thread.start()
    return f"127.0.0.1:{server.getsockname()[1]}", thread


def versions(*keys: int) -> bytes:
    body = bytes(2) + len(keys).to_bytes(4, "big") + b"".join(key.to_bytes(2, "big") + bytes(4) for key in keys)
    return (len(body) + 4).to_bytes(4, "big") + b"ottl" + body


@pytest.mark.parametrize(
    ("answers", "refused"),
    [
        ((versions(0, 3, 18), (8).to_bytes(4, "big") + b"ottl" + bytes(4)), None),
        # A controller does not offer Metadata.
        ((versions(0, 18),), None),
        ((versions(0, 3, 18), None), "requires authentication: set security.protocol=SASL_PLAINTEXT"),
        ((None,), "not a Kafka broker, or one that requires TLS"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "not a Kafka broker, or one that requires TLS"),
        # The key of Metadata inside another entry is none.
        ((versions(0x0300, 18),), None),
    ],
)
def test_what_answers_is_a_broker_that_serves_this_client(
    answers: tuple[bytes | None, ...], refused: str | None
) -> None:
    address, thread = answering(*answers)
    try:
        if refused is None:
            reach(address, {})
        else:
            with pytest.raises(OttlaError, match=refused):
                reach(address, {})
    finally:
        thread.join()


def test_a_server_without_tls_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for answers in ((None,), (b"plain text\n",)):
        address, thread = answering(*answers)
        with pytest.raises(OttlaError, match=f"{address}: does not speak TLS; check security.protocol"):
            reach(address, {"security.protocol": "ssl"})
        thread.join()


def test_each_address_that_does_not_answer_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = {1: socket.gaierror(), 2: TimeoutError(), 3: ConnectionRefusedError()}
    tried: list[Any] = []

    def create(address: tuple[str, int], seconds: float) -> Any:
        tried.append((address, seconds))
        raise reasons[address[1]]

    monkeypatch.setattr(socket, "create_connection", create)
    with pytest.raises(OttlaError) as raised:
        reach("nowhere:1, [::1]:2,,SSL://h:3", {})
    assert str(raised.value) == (
        "no broker at nowhere:1, [::1]:2,,SSL://h:3 (nowhere:1: unknown host nowhere; [::1]:2: does not answer; "
        "SSL://h:3: nothing listens there); check that it is running and that the address is right"
    )
    assert tried == [(("nowhere", 1), 4.0), (("::1", 2), 4.0), (("h", 3), 4.0)]
    reasons[9092] = ConnectionRefusedError()
    with pytest.raises(OttlaError, match=r"; start a node with `ottla start`, or name a cluster with -b HOST:PORT$"):
        reach("127.0.0.1:9092", {})
    for wrong, why in (("h", "expected HOST:PORT"), (":1", "expected HOST:PORT"), ("h:x", "expected HOST:PORT")):
        with pytest.raises(click.UsageError, match=f"^-b {wrong}: {why}, or several separated by commas$"):
            reach(wrong, {})
    for port in (0, 65_536):
        with pytest.raises(click.UsageError, match=rf"^-b h:{port}: invalid port {port} \(expected 1 to 65535\)$"):
            reach(f"h:{port}", {})
