"""Our own load generator: Produce requests over plain sockets, in a separate process without a JVM.

    python -m bench.load requests PORT TOPIC PARTITIONS CONNECTIONS SECONDS
    python -m bench.load latency PORT TOPIC PARTITIONS RATE SECONDS WARMUP_SECONDS

`requests` is a closed loop: every connection has one request with one 100-byte record in flight, and sends the next
one when the answer arrives. The figure is the number of answers per second.

`latency` is an open loop: the records of 1 KiB that are due in a millisecond at a fixed rate are sent together, each
millisecond to the next partition, over one connection per partition. A latency runs from the due time of a record to
its answer, whenever it was sent: a system that stalls is charged for every record due meanwhile, so there is no
coordinated omission.

Not obvious:
- One thread, non-blocking sockets, epoll and select: select sleeps with microsecond precision, where event loops (and
  epoll) round timers to whole milliseconds, and the system lacks the CPU that the generator uses.
- By default Linux wakes a thread 50 us late, and a halted virtual core takes 40 us more: the timer slack is turned
  off, and the generator spins for the last `_SPIN_S` before a due time, but only while nothing is in flight: it never
  keeps a core from a busy system (docs/decisions/0096).
- Requests are encoded before the clock starts; only the correlation id is written into them.
- `busy` is the share of a core that the generator used, `late_p99_ms` and `late_p999_ms` the lateness of its sends: the
  smaller they are, the better the figures.
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
#: The timeout of the last answers.
PATIENCE_S = 60.0
#: Twice the lateness of a sleep on a halted core.
_SPIN_S = 80e-6
#: prctl's PR_SET_TIMERSLACK; in nanoseconds, where 0 means the default.
_SET_TIMER_SLACK = 29
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")


class Lane:
    """A connection to one partition, with the due times of its unanswered requests."""

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
        #: the due times of the requests in flight, oldest first: answers come in the order of the requests
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
        """Send as much as the socket takes."""
        with suppress(BlockingIOError):
            del self.unsent[: self.socket.send(self.unsent)]

    def pull(self) -> None:
        """Receive, and record the latency of each answer."""
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
    """A lane for each of the partitions, closed at the end."""
    lanes: list[Lane] = []
    try:
        for partition in partitions:
            lanes += [Lane(port, topic, partition, records, record_bytes)]
        yield lanes
    finally:
        for lane in lanes:
            lane.socket.close()


def requests(port: int, topic: str, partitions: int, connections: int, seconds: float) -> dict[str, float]:
    """Requests of one record per second, with one in flight per connection."""
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
    # Tick n is a request of lane n % partitions: the warm-up is removed from each lane alike.
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
    """Send a request per tick, over the lanes in turn, and wait until all are answered."""
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
    """Make this thread's timers precise, where the system supports it (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def main(what: str, port: str, topic: str, *numbers: str) -> None:
    """Run one of the two loads and print its figures as a line of JSON."""
    gc.disable()  # nothing here creates cycles, and a collection would be charged to the system
    if what == "requests":
        partitions, connections, seconds = numbers
        figures = requests(int(port), topic, int(partitions), int(connections), float(seconds))
    else:
        partitions, rate, seconds, warmup_s = numbers
        figures = latency(int(port), topic, int(partitions), int(rate), float(seconds), float(warmup_s))
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
