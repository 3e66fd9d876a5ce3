"""Requests of every API and version with any values in them, and any bytes: the node answers or closes, and goes on.

No handler may end in an exception that it did not mean, which is what a trace in the log is. One seed is one history
(`ottla.sim`).
"""

from __future__ import annotations

import logging
import sys
from random import Random
from resource import RUSAGE_SELF, getrusage
from time import process_time
from typing import Any

import pytest

from ottla.broker.dispatch.dispatch import HANDLERS
from ottla.sim.machine import Machine
from ottla.wire.api import API, ApiKey
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.batch import build
from ottla.wire.codec import Codec
from ottla.wire.compile import encode
from ottla.wire.header import RequestHeader, request_header_version
from ottla.wire.schema import WireField
from tests.wire.value import message

REQUESTS = 150
#: What one small request may cost the loop, and all of a history together.
SECONDS_MAX = 1.0
BYTES_MAX = 150 << 20
_NUMBERS = (0, 1, -1, 2, 7, 100, (1 << 31) - 1, -(1 << 31))
_NAMES = ("t", "u", "g", "", "no such thing", "__consumer_offsets", "__cluster_metadata", "1", "consumer", "range")
_SETTINGS = (
    "retention.ms",
    "cleanup.policy",
    "message.max.bytes",
    "compression.type",
    "nothing.like.it",
    "interval.ms",
)
_VALUES = ("-1", "1000", "compact", "zstd", "", "x", None)


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class Fuzz:
    """A machine, and what its node logged as its own fault."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.machine = Machine(Random(seed), {"log.dirs": "/a,/b", "auto.create.topics.enable": "false"})
        self.machine.start()
        assert self.machine.node is not None
        for name in ("t", "u"):
            self.machine.create_topic(name, 2)
        self.machine.settle()
        self.topic_id = self.machine.node.image.topics["t"].topic_id
        self.batches = [
            build([(self.machine.clock.now_ms(), b"k", b"v", ())]),
            build([(self.machine.clock.now_ms(), None, b"v" * 500, ())], codec=Codec.ZSTD),
            build([(0, b"k", None, ())], producer_id=5, producer_epoch=0, base_sequence=0),
        ]

    def plausible(self, field: WireField, rng: Random) -> Any:
        """Now and then what gets further than a name that nobody has."""
        if field.is_array or field.struct is not None or rng.random() < 0.2:
            return None
        kind = field.type
        if kind == "String":
            if field.name == "name" and rng.random() < 0.3:
                return rng.choice(_SETTINGS)
            if field.name == "value":
                return rng.choice(_VALUES) if field.nullable else "1000"
            return rng.choice(_NAMES)
        if kind == "Uuid":
            return self.topic_id if rng.random() < 0.7 else None
        if kind == "Records":
            return rng.choice(self.batches)
        if kind in ("Int8", "Int16", "Int32", "Int64"):
            bits = int(kind[3:])
            return max(-(1 << bits - 1), min((1 << bits - 1) - 1, rng.choice(_NUMBERS)))
        return None

    def request(self) -> bytes:
        """A whole request of any API, sometimes with bytes changed, cut or added."""
        rng = self.rng
        key = rng.choice(sorted(HANDLERS))
        version = rng.choice(API[ApiKey(key)].stable_versions)
        header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="fuzz")
        override = self.plausible if rng.random() < 0.8 else None
        body = message(API[ApiKey(key)].request, version, rng, override=override, unknown=rng.random() < 0.1)
        data = bytearray(encode(header, request_header_version(key, version)) + encode(body, version))
        if rng.random() < 0.2:
            where = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[where] = rng.randrange(256)
                case 1:
                    del data[where:]
                case _:
                    data[where:where] = rng.randbytes(rng.randrange(1, 9))
        return bytes(data)

    def send(self, data: bytes) -> list[bytes]:
        """What came back; b"" is the end of the connection. What waits for time to pass has no answer yet."""
        replies: list[bytes] = []
        connection = self.machine.connect(replies.append, lambda: replies.append(b""))
        connection.send(data)
        self.machine.settle()
        return replies

    def serves(self) -> bool:
        body = encode(MetadataRequest(topics=None), 12)
        header = RequestHeader(request_api_key=3, request_api_version=12, correlation_id=1, client_id="fuzz")
        replies = self.send(encode(header, 2) + body)
        return len(replies) == 1 and len(replies[0]) > 50


def run(seed: int, requests: int, caplog: pytest.LogCaptureFixture) -> None:
    fuzz = Fuzz(seed)
    memory = peak_bytes()
    for number in range(requests):
        caplog.clear()
        data = fuzz.request()
        with caplog.at_level(logging.ERROR, logger="ottla.broker"):
            began = process_time()
            replies = fuzz.send(data)
            seconds = process_time() - began
        faults = [record.getMessage() + str(record.exc_info) for record in caplog.records if record.exc_info]
        assert not faults, f"seed {seed}, request {number}: {data.hex()}"
        # CPU of this process: what others do on the machine does not count. A small request is no long work.
        assert seconds < SECONDS_MAX, f"seed {seed}, request {number}: {seconds:.1f} s for {data.hex()}"
        assert len(replies) <= 2, f"seed {seed}, request {number}"
        assert fuzz.machine.failure is None, f"seed {seed}, request {number}: {fuzz.machine.failure}"
    assert fuzz.serves()
    assert peak_bytes() - memory < BYTES_MAX, f"seed {seed}"


@pytest.mark.parametrize("seed", range(4))
def test_any_request_is_answered_and_the_node_goes_on(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    run(seed, REQUESTS, caplog)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_more_requests_are_answered_and_the_node_goes_on(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    run(seed, 20 * REQUESTS, caplog)
