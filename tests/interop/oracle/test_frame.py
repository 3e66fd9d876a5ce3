"""Frames that are wrong: their connection closes, and the others go on."""

import struct

import pytest

from ottla.wire.api import API
from ottla.wire.compile import encode
from ottla.wire.header import RequestHeader
from tests.interop.oracle.side import Connection, Oracle, Side, frame, message
from tests.interop.oracle.test_record import batch, data


def header(key: int, version: int, client_id: str | None = "oracle") -> bytes:
    asked = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id=client_id)
    return encode(asked, 1)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


METADATA = frame(message("Metadata", topics=[]), 9)

#: What is wrong -> the bytes that are sent.
WRONG = {
    "a length of zero": struct.pack(">i", 0),
    "a length below zero": struct.pack(">i", -1),
    "a length over socket.request.max.bytes": struct.pack(">i", 104_857_601) + b"x" * 100,
    "a length that is all ones": b"\x7f\xff\xff\xff",
    "a header that is cut": framed(METADATA[4:10]),
    "a body that is cut": framed(METADATA[4:-2]),
    "an unknown api": framed(header(500, 0)),
    "an api that went with ZooKeeper": framed(header(4, 0) + b"\0" * 32),
    "an api of the controllers": framed(header(52, 0) + b"\0" * 32),
    "a negative version": framed(header(3, -1) + b"\0" * 8),
    "a version too new": framed(header(3, 99) + b"\0" * 8),
    "a version that was removed": framed(header(1, 3) + b"\0" * 32),
    "an array longer than the frame": framed(header(3, 1) + struct.pack(">i", 1_000_000)),
    "a string longer than the frame": framed(header(3, 1) + struct.pack(">ih", 1, 30_000) + b"abc"),
    "an array of negative length": framed(header(3, 1) + struct.pack(">i", -7)),
    "text that is not a request": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "a TLS hello": bytes.fromhex("160301020001000001fc0303") + b"\0" * 512,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_frame_closes_its_connection_and_no_other(oracle: Oracle, wrong: str) -> None:
    def script(side: Side) -> None:
        bystander = side.connect()
        side.ask("Metadata", 9, on=bystander, topics=[])
        victim = side.connect()
        victim.send(WRONG[wrong])
        side.note("the reply", answer(victim))
        side.ask("Metadata", 9, on=bystander, topics=[])

    oracle.compare(script)


def answer(connection: Connection) -> str:
    """ "closed", the length of a reply, or "silence"."""
    try:
        reply = connection.reply()
    except TimeoutError:
        return "silence"
    return "closed" if reply is None else f"{len(reply)} bytes"


def test_a_null_client_id_and_bytes_after_a_request_are_taken(oracle: Oracle) -> None:
    def script(side: Side) -> None:
        body = encode(message("Metadata", topics=[]), 8)
        for number, head in enumerate((header(3, 8, None), header(3, 8, ""), header(3, 8))):
            connection = side.connect()
            connection.send(framed(head + body + b"x" * (number == 2)))
            side.note(f"{number}", answer(connection))

    oracle.compare(script)


def test_requests_that_come_in_pieces_or_together_are_all_answered_in_order(oracle: Oracle) -> None:
    def script(side: Side) -> None:
        connection = side.connect()
        many = b"".join(frame(message("Metadata", topics=[]), 9, number) for number in range(1, 21))
        for start in range(0, len(many), 7):
            connection.send(many[start : start + 7])
        order = []
        for _ in range(20):
            reply = connection.reply()
            assert reply is not None
            order.append(struct.unpack(">i", reply[:4])[0])
        side.note("order", order)

    oracle.compare(script)


def test_acks_0_has_no_reply_and_its_error_closes_the_connection(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name)
        connection = side.connect()
        good = message("Produce", acks=0, timeout_ms=1000, topic_data=data(name, batch()))
        connection.send(frame(good, 9, 1))
        side.ask("Metadata", 9, on=connection, topics=[])  # the first reply is to the second request
        bad = message("Produce", acks=0, timeout_ms=1000, topic_data=data(name + "-missing", batch()))
        connection.send(frame(bad, 9, 3))
        side.note("after an error", answer(connection))

    oracle.compare(script)


def test_every_api_that_is_not_served_to_clients_closes_the_connection(oracle: Oracle) -> None:
    def script(side: Side) -> None:
        for api in API.values():
            if "broker" in api.listeners or not api.versions:
                continue
            connection = side.connect()
            connection.send(frame(message(api.name), api.versions[0]))
            side.note(api.name, answer(connection))

    oracle.compare(script)
