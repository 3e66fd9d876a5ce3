"""A node with many partitions, many connections and a long log; results go to bench/results/scale.md.

    python -m bench.scale [--only starts] [--log-gib 20]

    starts    a clean restart with 10,000 partitions, of both systems, until all have acknowledged a record
    requests  our node's CPU per request, with 10,000 partitions and 2,000 connections, and with one of each
    log       our node's rate and CPU over the first and the last tenth of a log of --log-gib GiB

Not obvious:
- CPU is the kernel's count for the node's process (schedstat), which is independent of the load.
- `requests` has one request in flight at a time in both cases, over all connections in turn: with several, one
  connection would send many in one read, and many connections one each, which is a different comparison.
- Each tenth of the log begins with a clean page cache: with a full one, a log is only as fast as the disk.
"""

import argparse
import select
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench import RESULTS, SCRATCH, raw
from bench.__main__ import QUIET_LOAD
from bench.load import Lane
from bench.report import facts as facts_of_now
from bench.system import SYSTEMS, System, settle

_TOPICS = 10
_UNDER_WAY = 1
_RECORDS_OF_1_KIB = 900
_PIPELINE = 5
_PATIENCE_S = 180

Rows = list[tuple[str, str, str]]


def main() -> int:
    """Run the selected parts and write the table. Exit code 1 if something failed."""
    options = _options()
    facts = facts_of_now()
    if facts["load_average"] > QUIET_LOAD:
        print(f"scale: the load average is {facts['load_average']}; times want a machine that does nothing else")
    SCRATCH.mkdir(parents=True, exist_ok=True)
    works: dict[str, Callable[[argparse.Namespace], Rows]] = {
        "starts": _starts,
        "requests": _requests,
        "log": _long_log,
    }
    rows: Rows = []
    for name in options.only or works:
        rows += works[name](options)
    lines = [
        "# Many partitions, many connections, a long log",
        "",
        "Written by `python -m bench.scale`; what is measured stands at the head of `bench/scale.py`.",
        "",
        f"- {facts['processor']}, {facts['cores']} cores, {facts['filesystem']}.",
        f"- Load average at the start {facts['load_average']}.",
        f"- Commit {facts['commit']}, {facts['date']}.",
        "",
        "| what | figure | goal |",
        "|---|---:|---:|",
        *(f"| {what} | {figure} | {goal} |" for what, figure, goal in rows),
        "",
    ]
    directory = options.out or (SCRATCH if options.only else RESULTS)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "scale.md").write_text("\n".join(lines))
    print("\n".join(lines))
    return 0


# ---------------------------------------------------------------------------------------------------- starts


def _starts(options: argparse.Namespace) -> Rows:
    took: dict[str, float] = {}
    rows: Rows = []
    for name in SYSTEMS if not options.ours else ("ottla",):
        with _Started(name) as system:
            each = options.partitions // _TOPICS
            began = time.perf_counter()
            raw.create_topic(system.port, "first", each, None, _PATIENCE_S)
            made_s = time.perf_counter() - began
            _make(system, options.partitions - each)
            rows.append(
                (f"CreateTopics of {each:,} partitions, until all have acknowledged, {name}", f"{made_s:.2f} s", "")
            )
            for stop in ("the first time", "again"):
                began = time.perf_counter()
                _stop(system)
                rows.append((f"Clean stop with {options.partitions:,} partitions, {stop}, {name}", _since(began), ""))
                began = time.perf_counter()
                system.server.launch()
                raw.until_acknowledged(system.port, "first", each, create=False, within_s=_PATIENCE_S)
                for number in range(1, _TOPICS):
                    raw.until_acknowledged(system.port, f"many-{number}", each, create=False, within_s=_PATIENCE_S)
                took[name] = time.perf_counter() - began
            goal = "under 5 s" if name == "ottla" else ""
            what = f"Start with {options.partitions:,} partitions, until all have acknowledged, {name}"
            rows.append((what, f"{took[name]:.2f} s, {_cpu_us(system) / 1e6:.2f} s of CPU", goal))
            print(rows[-1], file=sys.stderr)
    if len(took) == 2:
        rows.append(("Start, Ottla / Apache", f"{took['ottla'] / took['apache']:.3f}", "at most 0.33"))
    return rows


def _make(system: System, partitions: int) -> None:
    for number in range(1, _TOPICS):
        raw.create_topic(system.port, f"many-{number}", partitions // (_TOPICS - 1), None, _PATIENCE_S)


# ---------------------------------------------------------------------------------------------------- requests


def _requests(options: argparse.Namespace) -> Rows:
    costs: dict[str, list[float]] = {"few": [], "many": []}
    with _Started("ottla") as system, ExitStack() as stack:
        raw.create_topic(system.port, "one", 1, None, 60)
        few = [_lane(stack, system.port, "one", 0)]
        each = options.partitions // _TOPICS
        # First the node with one partition, before it has the others.
        _cost(system, few, options.requests)
        costs["few"] += [_cost(system, few, options.requests) for _ in range(3)]
        _make(system, options.partitions)
        count = options.connections
        many = [
            _lane(stack, system.port, f"many-{1 + number % (_TOPICS - 1)}", number % each) for number in range(count)
        ]
        _cost(system, many, options.requests)
        costs["many"] += [_cost(system, many, options.requests) for _ in range(3)]
    one, other = median(costs["few"]), median(costs["many"])
    print(costs, file=sys.stderr)
    return [
        ("CPU a Produce request, 1 partition and 1 connection", f"{one:.1f} us", ""),
        (f"the same, {options.partitions:,} partitions and {count:,} connections", f"{other:.1f} us", ""),
        ("CPU a request, many / one", f"{other / one:.2f}", "at most 1.3"),
    ]


def _lane(stack: ExitStack, port: int, topic: str, partition: int) -> Lane:
    lane = Lane(port, topic, partition, 1, 100)
    stack.callback(lane.socket.close)
    return lane


def _cost(system: System, lanes: list[Lane], requests: int) -> float:
    """Microseconds of the node's CPU per request, with `_UNDER_WAY` in flight over these connections in turn."""
    began_us, sent, done = _cpu_us(system), 0, sum(lane.answered for lane in lanes)
    until = done + requests
    by_number = {lane.fileno(): lane for lane in lanes}
    with select.epoll() as poll:
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        while done < until:
            while sent < requests and sent - (requests - until + done) < _UNDER_WAY:
                lanes[sent % len(lanes)].send(time.perf_counter())
                sent += 1
            ready = poll.poll(30)
            if not ready:
                raise RuntimeError("no answer within 30 s")
            for number, _ in ready:
                lane = by_number[number]
                before = lane.answered
                lane.pull()
                done += lane.answered - before
    return (_cpu_us(system) - began_us) / requests


def _cpu_us(system: System) -> float:
    """The CPU time of all threads of the node, by the scheduler."""
    tasks = Path(f"/proc/{system.server.pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1000


# ---------------------------------------------------------------------------------------------------- a long log


def _long_log(options: argparse.Namespace) -> Rows:
    requests = int(options.log_gib * (1 << 30)) // (_RECORDS_OF_1_KIB * 1024) // 10
    rates: list[float] = []
    costs: list[float] = []
    with _Started("ottla") as system:
        raw.create_topic(system.port, "long", 1, None, 60)
        frame = raw.produce_frame("long", [0], _RECORDS_OF_1_KIB, 1024)
        mib = requests * len(frame) / (1 << 20)
        with socket.create_connection(("127.0.0.1", system.port), timeout=60) as connection:
            for _ in range(10):
                settle()
                began, began_us = time.perf_counter(), _cpu_us(system)
                _send(connection, frame, requests, raw.error_at("long"))
                rates.append(mib / (time.perf_counter() - began))
                costs.append((_cpu_us(system) - began_us) / mib)
                print(f"scale: {rates[-1]:.0f} MiB/s, {costs[-1]:.0f} us of CPU a MiB", file=sys.stderr)
    return [
        (
            f"First tenth of a log of {options.log_gib:g} GiB",
            f"{rates[0]:.0f} MiB/s, {costs[0]:.0f} us of CPU a MiB",
            "",
        ),
        ("its last tenth", f"{rates[-1]:.0f} MiB/s, {costs[-1]:.0f} us of CPU a MiB", ""),
        ("Rate, last / first tenth", f"{rates[-1] / rates[0]:.2f}", "at least 0.95"),
        ("CPU, last / first tenth", f"{costs[-1] / costs[0]:.2f}", ""),
    ]


def _send(connection: socket.socket, frame: bytearray, requests: int, error_at: int) -> None:
    """Send `requests` requests, `_PIPELINE` of them in flight."""
    for number in range(requests + _PIPELINE):
        if number < requests:
            connection.sendall(frame)
        if number >= _PIPELINE:
            size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
            reply = connection.recv(size, socket.MSG_WAITALL)
            code = struct.unpack_from(">h", reply, error_at)[0]
            if code:
                raise RuntimeError(f"a batch is refused with error {code}")


# ---------------------------------------------------------------------------------------------------- both


class _Started:
    """A system in an empty directory, for a `with` block."""

    def __init__(self, name: str) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix=f"scale-{name}-", dir=SCRATCH, ignore_cleanup_errors=True)
        self._system = System(name, Path(self._scratch.name))

    def __enter__(self) -> System:
        settle()
        self._system.start()
        return self._system

    def __exit__(self, *_: object) -> None:
        self._system.server.kill()
        self._scratch.cleanup()


def _stop(system: System) -> None:
    """Stop by SIGTERM, with a long timeout."""
    process = system.server.process
    assert process is not None
    process.terminate()
    process.wait(_PATIENCE_S)
    system.server.process = None


def _since(began: float) -> str:
    return f"{time.perf_counter() - began:.2f} s"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.scale", description="Many partitions, many connections, a long log.")
    parser.add_argument("--only", action="append", choices=("starts", "requests", "log"), help="may be repeated")
    parser.add_argument("--ours", action="store_true", help="starts: without Apache Kafka")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=2_000)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--log-gib", type=float, default=4.0, help="size of the log in GiB; the goal's is 20")
    parser.add_argument("--out", type=Path, help="where the table goes")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
