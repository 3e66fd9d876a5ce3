"""A disk that cannot be read while a share group fetches from it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from ottla.broker.partitions.log_dirs import LogDirs
from ottla.kernel.error import ErrorCode
from ottla.log.segment.segment import Slice
from tests.broker.wire_client import WireClient
from tests.share.member import Member, create, produce, records_of, set_group


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings={"share.coordinator.state.topic.num.partitions": 3}) as node:
        yield node


@pytest.mark.parametrize("waits", [False, True])
def test_a_fetch_that_cannot_read_a_partition_tells_its_error_and_has_the_others(
    node: ottla.Node, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    checked: list[tuple[str, int | None]] = []
    fails = [True]
    read = Slice.bytes

    def broken(part: Slice) -> bytes:
        if fails:
            fails.clear()
            raise OSError(errno.EIO, "the disk says no")
        return read(part)

    group = f"reads-{waits}"
    with WireClient(node.bootstrap_servers) as client:
        set_group(client, group, {"share.auto.offset.reset": "earliest"})
        topic, _ = create(client, 2)
        with Member(node.bootstrap_servers, group, topic) as member:
            member.join()
            # Their share partitions are loaded.
            member.fetch()
            member.fetch(wait_ms=100)
            monkeypatch.setattr(LogDirs, "check", lambda _, log, error: checked.append((log.path, error.errno)))
            monkeypatch.setattr(Slice, "bytes", broken)
            if waits:
                member.send_fetch(wait_ms=20_000)
            produce(client, topic, b"a", partition=0)
            if not waits:
                produce(client, topic, b"b", partition=1)
                member.send_fetch()
            response = member.receive_fetch()
            (answer,) = response.responses
            parts: dict[int, Any] = {part.partition_index: part for part in answer.partitions}
            assert parts[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR and not parts[0].acquired_records
            assert [(path.rpartition("/")[2], number) for path, number in checked] == [(f"{topic}-0", errno.EIO)]
            if not waits:
                assert [(each.first_offset, each.last_offset) for each in parts[1].acquired_records] == [(0, 0)]
            # The disk can be read again, and the record is there.
            assert [each.value for each in records_of(member.fetch())] == [b"a"]
