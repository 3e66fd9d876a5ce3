"""The hot paths' cost in instructions, which is independent of the load: `python -m bench.instructions`.

Each work runs under callgrind, which counts only inside `functools.reduce`, where the rounds run: starting a node takes
a thousand times as many instructions, and not always the same number. With `--beside TREE` (repeatable) the same runs
on other work trees of this repository, for a table of before and after. Needs valgrind, and a Python with symbols.

- send: `Producer.send` of a hundred records of 100 B, and the encoding of their batch, without a broker.
- append: `Log.append` of a batch of ten records of 100 B, checksum and write included.
- produce: one record of 1 KiB to a partition, from the frame to the response (`Dispatch`), without sockets.
- produce 6 x 16 KiB: six partitions, as filled by a producer of 100 B records with its defaults.
- fetch: the last 16 KiB of a partition, in the same way.
- replica fetch: a follower's fetch in an unchanged session, in a simulated node, whose own work is included.
- replica fetch with news: a follower's fetch that confirms a record of one of 100 partitions and waits until another
  one has a record; the append and the turn of the loop are included.
"""

import argparse
import functools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import ROOT

_WARM, _ROUNDS = 200, 400


class _Peer:
    """The parts of a connection and its slot that a handler uses."""

    closed = False
    listener_name = "PLAINTEXT"
    principal = "User:ANONYMOUS"
    peer = ("127.0.0.1", 1)
    superseded = None
    turns: Any = None

    def fill(self, parts: Any) -> None:
        """Take the answer."""
        assert parts

    def pause(self) -> None:
        """Do nothing: there are no further requests."""

    resume = pause


def _send(directory: str) -> Callable[[], object]:
    from ottla.client import Producer
    from ottla.wire.codec import Codec

    producer = Producer("127.0.0.1:1")
    accumulator, lock, values = (
        producer._accumulator,
        producer._lock,
        [bytes([index % 256]) * 100 for index in range(100)],
    )
    with lock:
        accumulator.set_partitions("t", 6, range(6))

    def once() -> None:
        for value in values:
            producer.send("t", value)
        with lock:
            for partition in list(accumulator.active):
                while partition in accumulator.active:
                    batch = accumulator.take(partition)
                    batch.encode(Codec.NONE, None)
                    accumulator.complete(partition, batch)
                    batch.succeed(0, -1)

    return once


def _append(directory: str) -> Callable[[], object]:
    from ottla.host.disk import HostDisk
    from ottla.log.log import Log, LogSettings
    from ottla.wire.batch import build

    log = Log.open(HostDisk(), f"{directory}/t-0", LogSettings(), now_ms=0)
    batch = build([(1, None, b"v" * 100, [])] * 10)
    return lambda: log.append(bytearray(batch), leader_epoch=0, now_ms=1)


def _node(directory: str) -> Any:
    """A node with a topic of six partitions, on a loop that ran only to create it."""
    import asyncio

    from ottla.broker.coordinators.topic_spec import new_topic
    from ottla.broker.metadata.format import format_if_empty
    from ottla.broker.node import BrokerNode
    from ottla.host.descriptor import allow_many
    from ottla.host.disk import HostDisk
    from ottla.settings.server.settings import ServerSettings
    from ottla.settings.server.single_node import single_node

    allow_many()
    loop = asyncio.new_event_loop()
    settings = ServerSettings.parse(single_node(directory, "127.0.0.1", 0, 0))
    format_if_empty(HostDisk(), settings)
    node = BrokerNode(settings, loop)
    node.open()
    node.create_topics([new_topic("t", 6, {})], lambda _: loop.stop())
    loop.run_forever()
    while len(node.partitions) < 6:
        loop.call_later(0.05, loop.stop)
        loop.run_forever()
    return node


def _dispatched(node: Any, request: bytes) -> Callable[[], object]:
    peer: Any = _Peer()
    return lambda: node.dispatch.on_frame(peer, memoryview(bytearray(request)), peer)


def _produce(directory: str) -> Callable[[], object]:
    from bench.raw import produce_frame

    return _dispatched(_node(directory), bytes(produce_frame("t", [0], 1, 1024))[4:])


def _produce_six(directory: str) -> Callable[[], object]:
    from bench.raw import produce_frame

    return _dispatched(_node(directory), bytes(produce_frame("t", [*range(6)], 150, 100))[4:])


def _fetch(directory: str) -> Callable[[], object]:
    from bench.raw import frame, produce_frame
    from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
    from ottla.wire.compile import encode

    node = _node(directory)
    _dispatched(node, bytes(produce_frame("t", [0], 150, 100))[4:])()
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="t", partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics, session_epoch=-1)
    return _dispatched(node, bytes(frame(1, 11, encode(request, 11)))[4:])


def _replica_fetch(directory: str) -> Callable[[], object]:
    from tests.broker.test_replica_fetch import Follower, at
    from tests.broker.test_replicated_produce import Pair

    follower = Follower(Pair())
    follower.told(at(0))
    return lambda: follower.told()


def _replica_news(directory: str) -> Callable[[], object]:
    from bench.raw import frame
    from ottla.broker.coordinators.topic_spec import new_topic
    from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
    from ottla.wire.batch import build
    from ottla.wire.compile import decode, encode
    from ottla.wire.record.metadata import PartitionChangeRecord

    node, peer, count = _node(directory), _Peer(), 100
    loop, answers = node.loop, []
    peer.fill = lambda parts: answers.append(parts)  # type: ignore[method-assign]

    def turn() -> None:
        loop.call_soon(loop.stop)
        loop.run_forever()

    node.create_topics([new_topic("followed", count, {})], lambda _: None)
    while len(node.partitions) < 6 + count:
        turn()
    led = [node.partitions["followed", index] for index in range(count)]
    node.quorum.append(
        [
            PartitionChangeRecord(topic_id=led[0].topic_id, partition_id=index, replicas=[1, 2], isr=[1, 2])
            for index in range(count)
        ]
    )
    while any(each.machine is None for each in led):
        turn()

    def request(parts: list[tuple[int, int]], session: int, epoch: int) -> bytes:
        partitions = [
            FetchPartition(partition=index, fetch_offset=offset, log_start_offset=0, partition_max_bytes=1 << 20)
            for index, offset in parts
        ]
        topics = [FetchTopic(topic="followed", partitions=partitions)] if parts else []
        body = FetchRequest(
            replica_id=2,
            max_wait_ms=60_000 if session else 0,
            min_bytes=1,
            max_bytes=10 << 20,
            session_id=session,
            session_epoch=epoch,
            topics=topics,
        )
        return bytes(frame(1, 11, encode(body, 11)))[4:]

    def send(data: bytes) -> None:
        node.dispatch.on_frame(peer, memoryview(bytearray(data)), peer)

    send(request([(index, 0) for index in range(count)], 0, 0))
    session = decode(FetchResponse, 11, b"".join(answers.pop()), 8)[0].session_id
    batch = build([(1, None, b"v" * 100, [])])
    requests = (
        request([((number - 1) * 7 % count, (number - 1) // count + 1)] if number else [], session, 1 + number)
        for number in range(_WARM + _ROUNDS)
    )
    rounds = iter([(each, led[number * 7 % count]) for number, each in enumerate(requests)])

    def once() -> None:
        data, partition = next(rounds)
        send(data)
        partition.append(bytearray(batch), 1)
        turn()
        assert len(answers) == 1
        answers.clear()

    return once


WORKS: dict[str, Callable[[str], Callable[[], object]]] = {
    "send": _send,
    "append": _append,
    "produce": _produce,
    "produce 6 x 16 KiB": _produce_six,
    "fetch": _fetch,
    "replica fetch": _replica_fetch,
    "replica fetch with news": _replica_news,
}


def _run(work: str) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        once = WORKS[work](directory)
        for _ in range(_WARM):
            once()
        nothing: object = None
        functools.reduce(lambda _, __: once(), range(_ROUNDS), nothing)
        sys.stdout.flush()
        # The cost of a clean stop is not measured.
        os._exit(0)


def counted(tree: Path, work: str) -> float:
    """The instructions of one round in a work tree."""
    switched = ("--collect-atstart=no", "--toggle-collect=functools_reduce")
    callgrind = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *switched)
    # This file, with the modules of that tree.
    command = [*callgrind, sys.executable, __file__, "--run", work]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(tree)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, cwd=tree)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or found is None or not int(found[1]):
        raise RuntimeError(f"{work} in {tree} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return int(found[1]) / _ROUNDS


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="bench.instructions", description="What the hot paths cost in instructions.")
    parser.add_argument("--beside", type=Path, action="append", default=[], help="another work tree (repeatable)")
    parser.add_argument("--only", choices=WORKS, action="append", help="run only this work (repeatable)")
    options = parser.parse_args()
    trees = [*(tree.resolve() for tree in options.beside), ROOT]
    print("| work | " + " | ".join(tree.name for tree in trees) + " |\n|---|" + "---:|" * len(trees))
    for work in options.only or WORKS:
        costs = [counted(tree, work) for tree in trees]
        changes = [f" ({100 * (costs[-1] / cost - 1):+.1f} %)" for cost in costs[:-1]]
        told = [f"{cost:,.0f}{change}" for cost, change in zip(costs, [*changes, ""], strict=True)]
        print(f"| {work} | {' | '.join(told)} |", flush=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        _run(sys.argv[2])
    else:
        sys.exit(main())
