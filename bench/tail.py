"""The limit of ack tail latencies on this machine, written to bench/results/tail.md.

    python -m bench.tail [--realtime] [--rounds N] [--rate RECORDS_PER_S]

The load of the table's `ack-20000` (`bench.load`, open loop) runs against three servers in turn, all of them up the
whole time: Apache Kafka, our node, and `null`: one loop over epoll that receives a request, writes it to a file and
answers, without protocol, checksum or log. What null does not reach, no server in Python can reach, nor any other that
wakes a thread for a request, reads it, writes it and answers.

Rounds are short and alternate between the servers, so that other load affects all alike: the medians are compared, and
on a busy machine the minimum is closest to an idle one. Ten rounds take two minutes. `--realtime` schedules generator
and servers before everything else (SCHED_FIFO, which needs root), for meaningful figures on a busy machine.
"""

import argparse
import json
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench import RESULTS, SCRATCH
from bench.raw import PRODUCE_VERSION
from bench.report import facts as facts_of_now
from bench.system import SYSTEMS, System, settle
from bench.work import PARTITIONS
from ottla.wire.api.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.compile import encode

_SECONDS, _WARMUP_S = 2.0, 0.5
#: By then a JVM has compiled its code.
_FIRST_S = 12.0
_REALTIME = ("chrt", "--fifo", "50")
_SHOWN = ("p50_ms", "p99_ms", "p999_ms", "late_p99_ms", "late_p999_ms")
#: The figures that should be a fifth of Apache's.
_GOALS = {"p99_ms": "p99", "p999_ms": "p99.9"}
_TOPIC = "tail"
_RECEIVE_BYTES = 1 << 20
#: The head of a request: length, key, version, correlation id.
_HEAD = struct.Struct(">ihhi")


def main() -> int:
    """Run all servers, round by round, and write the table."""
    parser = argparse.ArgumentParser(prog="bench.tail", description="Where the tail of ack latencies ends.")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument(
        "--realtime", action="store_true", help="schedule generator and servers before everything else (needs root)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="the output directory")
    options = parser.parse_args()
    first = _REALTIME if options.realtime else ()
    facts = facts_of_now()
    SCRATCH.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Mapping[str, float]]]
    with ExitStack() as stack:
        ports = {name: stack.enter_context(_system(name, first)) for name in SYSTEMS}
        ports["null"] = stack.enter_context(_null(first))
        found = {name: [] for name in ports}
        _latency(first, ports["apache"], options.rate, _FIRST_S)
        for number in range(options.rounds):
            # Alternate the direction, so that the order is not the same in every round.
            for name in [*ports][:: -1 if number % 2 else 1]:
                settle()
                found[name].append(_latency(first, ports[name], options.rate, _SECONDS))
    text = table(found, facts, options.rate, realtime=options.realtime)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "tail.md").write_text(text)
    print(text)
    return 0


@contextmanager
def _system(name: str, first: tuple[str, ...]) -> Iterator[int]:
    """The port of Apache Kafka or our node, with the topic in it."""
    with tempfile.TemporaryDirectory(prefix=f"tail-{name}-", dir=SCRATCH, ignore_cleanup_errors=True) as directory:
        system = System(name, Path(directory))
        kind = system.server.kind
        system.server.kind = replace(kind, start=(*first, *kind.start))
        try:
            system.start()
            system.topic(_TOPIC, PARTITIONS)
            yield system.port
        finally:
            system.stop()


@contextmanager
def _null(first: tuple[str, ...]) -> Iterator[int]:
    """The port of a null server in a separate process."""
    command = [*first, sys.executable, "-m", "bench.tail", "serve", str(SCRATCH)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def _latency(first: tuple[str, ...], port: int, rate: int, seconds: float) -> Mapping[str, float]:
    numbers = (port, _TOPIC, PARTITIONS, rate, seconds, _WARMUP_S)
    command = [*first, sys.executable, "-m", "bench.load", "latency", *map(str, numbers)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    figures: Mapping[str, float] = json.loads(said.stdout)
    return figures


def table(
    found: Mapping[str, list[Mapping[str, float]]], facts: Mapping[str, object], rate: int, *, realtime: bool
) -> str:
    """The page: every server's figures, a fifth of Apache's, and the servers that reach it."""
    rounds = len(next(iter(found.values())))
    lines = [
        "# Where the tail of ack latencies ends",
        "",
        f"Written by `python -m bench.tail`, whose head says what this is. {rate:,} records/s of 1 KiB; milliseconds,",
        f"the median over {rounds} rounds, the least and the most in brackets. `late` is how late the generator",
        "sent: the machine's doing.",
        "",
        f"- {facts['processor']}, {os.cpu_count()} cores; load average at the start {facts['load_average']}"
        + ("; all of it with real-time priority." if realtime else "."),
        f"- Commit {facts['commit']}, {facts['date']}.",
        "",
        "| server | p50 | p99 | p99.9 | late p99 | late p99.9 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, runs in found.items():
        cells = [sorted(run[figure] for run in runs) for figure in _SHOWN]
        lines.append(f"| {name} | " + " | ".join(map(_cell, cells)) + " |")
    lines += [
        "",
        "A fifth of Apache's, and who reaches it (by the medians):",
        "",
        "| | a fifth of Apache's | the node | null |",
        "|---|---:|---:|---:|",
    ]
    lines += [_verdict(found, figure, title) for figure, title in _GOALS.items()]
    return "\n".join([*lines, ""])


def _cell(ordered: list[float]) -> str:
    return f"{median(ordered):.3f} ({ordered[0]:.3f} to {ordered[-1]:.3f})"


def _verdict(found: Mapping[str, list[Mapping[str, float]]], figure: str, title: str) -> str:
    of = {name: median(run[figure] for run in runs) for name, runs in found.items()}
    goal = of["apache"] / 5
    said = [f"{of[name]:.3f}, {'**reached**' if of[name] <= goal else 'not reached'}" for name in ("ottla", "null")]
    return f"| {title} | {goal:.3f} | {' | '.join(said)} |"


# ---------------------------------------------------------------------------------------------------- the null server


class _Peer:
    """A connection, and the file for its data."""

    def __init__(self, sock: socket.socket, directory: str) -> None:
        self._socket = sock
        #: An unnamed file, which disappears with the process.
        self._file = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
        self._position = 0
        #: The missing bytes of the current request.
        self._missing = 0
        self._correlation_id = 0

    def turn(self, memory: memoryview) -> bool:
        """Receive, write, and answer complete requests. False if the peer has disconnected."""
        try:
            count = self._socket.recv_into(memory)
        except ConnectionError:
            return False
        data = memory[:count]
        self._position += os.pwrite(self._file, data, self._position)
        at, answers = 0, b""
        while at < count:
            if not self._missing:
                # The generator's requests, or at least their heads, arrive in one piece.
                size, _, _, self._correlation_id = _HEAD.unpack_from(data, at)
                self._missing = 4 + size
            taken = min(self._missing, count - at)
            at += taken
            self._missing -= taken
            if not self._missing:
                answers += _answer(self._correlation_id)
        if answers:
            self._socket.send(answers)
        return count > 0

    def close(self) -> None:
        self._socket.close()
        os.close(self._file)


def _answer(correlation_id: int) -> bytes:
    return struct.pack(">ii", 4 + len(_BODY), correlation_id) + _BODY


_BODY = encode(
    ProduceResponse(
        responses=[TopicProduceResponse(name=_TOPIC, partition_responses=[PartitionProduceResponse(index=0)])]
    ),
    PRODUCE_VERSION,
)


def serve(directory: str) -> None:
    """Print the port, and serve until killed."""
    memory = memoryview(bytearray(_RECEIVE_BYTES))
    peers: dict[int, _Peer] = {}
    with socket.create_server(("127.0.0.1", 0)) as listener, select.epoll() as poll:
        print(listener.getsockname()[1], flush=True)
        poll.register(listener, select.EPOLLIN)
        while True:
            for number, _ in poll.poll():
                if number == listener.fileno():
                    sock, _ = listener.accept()
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    peers[sock.fileno()] = _Peer(sock, directory)
                    poll.register(sock, select.EPOLLIN)
                elif not peers[number].turn(memory):
                    poll.unregister(number)
                    peers.pop(number).close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        sys.exit(main())
