"""Our own load generator: Produce requests over plain sockets, in a process of its own and not on a JVM.

    python -m bench.load requests PORT TOPIC PARTITIONS CONNECTIONS SECONDS
    python -m bench.load latency PORT TOPIC PARTITIONS RATE SECONDS WARMUP_SECONDS

`requests` is a closed loop: every connection has one request of one 100-byte record under way, and sends the next when
the answer is there. The figure is how many are answered in a second.

`latency` is an open loop: the records of 1 KiB that a fixed rate makes due in a millisecond go out together, each
millisecond to the next partition, over a connection a partition. A latency runs from the due time of a record to its
answer, whenever it was sent: a system that stalls is charged for every record that was due meanwhile, so there is no
coordinated omission.

Not obvious:
- One thread, non-blocking sockets, epoll and select: select sleeps with microseconds, where event loops (and epoll)
  round a timer to whole milliseconds, and what the generator spends of the machine's cores the system does not have.
- A timer wakes a thread 50 us late by Linux's default, and a halted virtual core 40 us later still: the slack is
  turned off, and the last `_SPIN_S` before a due time are spun away. Only while nothing is under way: a core is never
  kept from a system that has something to do (docs/decisions/0096).
- Requests are laid out before the clock starts; only the correlation id is written into them.
- `busy` says which share of a core the generator took, `late_p99_ms` and `late_p999_ms` how late it sent: a figure of a
  system is only as good as these are small.
"""

import ctypes
import gc
import json
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from bench.raw import CORRELATION_ID_AT, error_at, produce_frame

TICK_S = 0.001
#: How long the last answers may take.
PATIENCE_S = 60.0
#: What a sleep on a halted core is late by, twice.
_SPIN_S = 80e-6
#: prctl's PR_SET_TIMERSLACK; in nanoseconds, 0 would be the default.
_SET_TIMER_SLACK = 29
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")


class Lane:
    """One connection to one partition, and the clock of each of its requests that is not answered yet."""

    def __init__(self, port: int, topic: str, partition: int, records: int, record_bytes: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.answered = 0
        self.latencies: list[float] = []
        self.lateness: list[float] = []
        #: what the socket did not take yet
        self.unsent = bytearray()
        self._frame = produce_frame(topic, [partition], records, record_bytes)
        self._error_at = 4 + error_at(topic)
        self._sent = 0
        #: the due times of what is under way, oldest first: answers come in the order of the requests
        self._due: deque[float] = deque()
        self._read = bytearray()

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, due: float) -> None:
        """Send the next request."""
        self._sent += 1
        _INT.pack_into(self._frame, CORRELATION_ID_AT, self._sent)
        self._due.append(due)
        self.lateness.append(time.perf_counter() - due)
        taken = 0
        if not self.unsent:
            with suppress(BlockingIOError):
                taken = self.socket.send(self._frame)
        self.unsent += memoryview(self._frame)[taken:]

    def push(self) -> None:
        """Give the socket what it takes."""
        with suppress(BlockingIOError):
            del self.unsent[: self.socket.send(self.unsent)]

    def pull(self) -> None:
        """Take what has come, and note the latency of each answer in it."""
        data = self.socket.recv(1 << 16)
        now = time.perf_counter()
        if not data:
            raise ConnectionError("the system closed the connection")
        self._read += data
        while len(self._read) >= 4 and len(self._read) >= (end := 4 + _INT.unpack_from(self._read)[0]):
            self.answered += 1
            correlation_id = _INT.unpack_from(self._read, 4)[0]
            code = _SHORT.unpack_from(self._read, self._error_at)[0]
            if correlation_id != self.answered or code:
                raise RuntimeError(f"request {self.answered} answered as {correlation_id} with error {code}")
            self.latencies.append(now - self._due.popleft())
            del self._read[:end]

    @property
    def waits(self) -> bool:
        return bool(self._due)


@contextmanager
def _lanes(port: int, topic: str, partitions: Iterable[int], records: int, record_bytes: int) -> Iterator[list[Lane]]:
    """A lane to each of the partitions, closed at the end."""
    lanes: list[Lane] = []
    try:
        for partition in partitions:
            lanes += [Lane(port, topic, partition, records, record_bytes)]
        yield lanes
    finally:
        for lane in lanes:
            lane.socket.close()


def requests(port: int, topic: str, partitions: int, connections: int, seconds: float) -> dict[str, float]:
    """How many requests of one record a second, one under way a connection."""
    places = [number % partitions for number in range(connections)]
    with _lanes(port, topic, places, 1, 100) as lanes, select.epoll() as poll:
        by_number = {lane.fileno(): lane for lane in lanes}
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        began, cpu_began = time.perf_counter(), time.process_time()
        until = began + seconds
        for lane in lanes:
            lane.send(began)
        while (now := time.perf_counter()) < until:
            for number, _ in poll.poll(1.0):
                lane = by_number[number]
                lane.pull()
                if not lane.waits:
                    lane.send(now)
    took, cpu = now - began, time.process_time() - cpu_began
    counts = [lane.answered for lane in lanes]
    if not all(counts):
        raise RuntimeError(f"{counts.count(0)} of {connections} connections were never answered")
    return {"records": sum(counts), "records_per_s": sum(counts) / took, "busy": cpu / took}


def latency(port: int, topic: str, partitions: int, rate: int, seconds: float, warmup_s: float) -> dict[str, float]:
    """Percentiles of the time from due to acknowledged, at a fixed rate."""
    records = max(1, round(rate * TICK_S))
    with _lanes(port, topic, range(partitions), records, 1024) as lanes:
        _sleep_precisely()
        began, cpu_began = time.perf_counter() + 0.01, time.process_time()
        ticks = round((seconds + warmup_s) / TICK_S)
        _keep_pace(lanes, began, ticks)
        took, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    # Tick n was a request of lane n % partitions: the warm-up is cut off each lane alike.
    warm = round(warmup_s / TICK_S) // partitions
    measured = sorted(value for lane in lanes for value in lane.latencies[warm:])
    late = sorted(value for lane in lanes for value in lane.lateness[warm:])
    return {
        "records": ticks * records,
        "p50_ms": 1000 * _at(measured, 0.5),
        "p99_ms": 1000 * _at(measured, 0.99),
        "p999_ms": 1000 * _at(measured, 0.999),
        "max_ms": 1000 * measured[-1],
        "late_p99_ms": 1000 * _at(late, 0.99),
        "late_p999_ms": 1000 * _at(late, 0.999),
        "busy": cpu / took,
    }


def _keep_pace(lanes: list[Lane], began: float, ticks: int) -> None:
    """Send a request each tick, over the lanes in turn, and return when all are answered."""
    tick = 0
    while tick < ticks or any(lane.waits for lane in lanes):
        while tick < ticks and (due := began + tick * TICK_S) <= time.perf_counter():
            lanes[tick % len(lanes)].send(due)
            tick += 1
        now = time.perf_counter()
        if now > began + ticks * TICK_S + PATIENCE_S:
            raise RuntimeError(f"{sum(lane.answered for lane in lanes)} of {ticks} requests answered")
        if tick == ticks:
            pause_s = 1.0
        else:
            pause_s = began + tick * TICK_S - now
            if not any(lane.waits for lane in lanes):
                pause_s -= _SPIN_S
                if pause_s <= 0:
                    continue
        readable, writable, _ = select.select(lanes, [lane for lane in lanes if lane.unsent], [], max(0.0, pause_s))
        for lane in readable:
            lane.pull()
        for lane in writable:
            lane.push()


def _sleep_precisely() -> None:
    """Have timers of this thread end when they are due, where the system can do that (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def main(what: str, port: str, topic: str, *numbers: str) -> None:
    """Run one of the two and print its figures as a line of JSON."""
    gc.disable()  # nothing here makes cycles, and a pass of the collector would be counted as the system's
    if what == "requests":
        partitions, connections, seconds = numbers
        figures = requests(int(port), topic, int(partitions), int(connections), float(seconds))
    else:
        partitions, rate, seconds, warmup_s = numbers
        figures = latency(int(port), topic, int(partitions), int(rate), float(seconds), float(warmup_s))
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
