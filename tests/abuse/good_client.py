"""A well-behaved client beside an attack: `python -m tests.abuse.good_client ADDRESS` prints each answer's seconds.

Fifty times a second it produces a record, reads it back and asks for metadata, until its standard input is closed. Its
work comes at this pace: after slow answers it catches up, as a producer with a backlog does.
"""

from __future__ import annotations

import select
import sys
import time
from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.batch import build
from tests.abuse.served import produced
from tests.broker.wire_client import WireClient

_ROUND_SECONDS = 0.02


def main() -> int:
    with WireClient(sys.argv[1]) as client:
        client.sock.settimeout(120)
        print("ready", flush=True)
        due = time.monotonic()
        while True:
            _round(client)
            due += _ROUND_SECONDS
            if select.select([sys.stdin], [], [], max(0, due - time.monotonic()))[0]:
                return 0


def _timed(client: WireClient, request: Any, version: int) -> Any:
    began = time.monotonic()
    reply = client.ask(request, version)
    print(time.monotonic() - began, flush=True)
    return reply


def _round(client: WireClient) -> None:
    records = build([(int(time.time() * 1000), b"k", b"good", ())])
    (answer,) = _timed(client, produced("good", records), 9).responses[0].partition_responses
    assert answer.error_code == ErrorCode.NONE, "a good request was lost"
    wanted = FetchPartition(partition=0, fetch_offset=answer.base_offset, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="good", partitions=[wanted])])
    (fetched,) = _timed(client, request, 11).responses[0].partitions
    assert fetched.records, "what was written was not read back"
    metadata = _timed(client, MetadataRequest(topics=[MetadataRequestTopic(name="good")]), 9)
    assert metadata.topics[0].error_code == ErrorCode.NONE


if __name__ == "__main__":
    sys.exit(main())
