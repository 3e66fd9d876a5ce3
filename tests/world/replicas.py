"""One history of replicated partitions by a seed: real nodes, links and disks, and a controller that is a script.

Rules:
- The nodes are what users run but for their metadata, which the script tells them late, in its order; a node that
  starts is told the newest before it serves. AlterPartition goes to the script, and its answers come late, too.
- The script fences a broker some time after it died or was cut off, elects out of the ISR alone, and takes a broker
  that was not shut down cleanly out of the ISR when it registers (KIP-966).
- The power goes only where another member of the ISR is up: no protocol saves what one replica alone has not synced.
- What is checked while it goes: no two values below a high watermark at one offset, members of the ISR hold what is
  committed. At the end: nothing acknowledged is missing, all replicas are level, in sync and equal byte by byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, cast

from ottla.kernel.error import ErrorCode
from ottla.log.log import Log
from ottla.log.segment.aborted import AbortedTransaction
from ottla.net.outbound import Outbound
from ottla.net.peer import OutboundOptions, Unanswered
from ottla.sim.checker import Broken, CommittedRecords, SentRecord, WorkloadLedger, check
from ottla.sim.disk import Crashed
from ottla.sim.world import World
from ottla.wire.api import fetch, produce
from ottla.wire.batch import build, read
from tests.world.scripted import PARTITIONS, PORT, TOPIC, Controller, ReplicaHost

_NODES = 3
_SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "100",
    "replica.socket.timeout.ms": "3000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.roll.ms": "9000",
    "log.index.size.max.bytes": "4096",
}
_FENCED_AFTER_MS = (500, 3_000)
_DOWN_MS = 6_000
_CALM_MS = 60_000


class Client:
    """Produces with acks=all and reads, a request at a time, at the leader that the script knows or at any replica."""

    def __init__(self, history: ReplicaHistory, name: str) -> None:
        self.history = history
        self.name = name
        self.rng = Random(f"{history.world.seed} {name}")
        self.host = history.world.host(name)
        self.loop = self.host.boot()
        self.outbounds: dict[int, Outbound] = {}
        self.number = 0
        self.positions = dict.fromkeys(range(PARTITIONS), 0)
        self.loop.call_soon(self._next)

    def _to(self, node_id: int) -> Outbound:
        found = self.outbounds.get(node_id)
        if found is None:
            address = self.history.script.hosts[node_id].host.address
            found = self.outbounds[node_id] = Outbound(
                cast(asyncio.AbstractEventLoop, self.loop),
                address,
                PORT,
                client_id=self.name,
                rng=self.rng,
                options=OutboundOptions(backoff_ms=50, backoff_max_ms=200, setup_timeout_ms=2_000),
                new_socket=self.host.socket,
            )
        return found

    def _next(self) -> None:
        if not self.history.going:
            return
        index = self.rng.randrange(PARTITIONS)
        leader = self.history.script.partitions()[index].leader
        if self.rng.random() < 0.3 or leader < 0:
            self._read(index, self.rng.choice(list(self.history.script.hosts)))
        else:
            at = leader if self.rng.random() < 0.95 else self.rng.choice(list(self.history.script.hosts))
            self._produce(index, at)

    def _again(self) -> None:
        self.loop.call_later(self.rng.random() * 0.1, self._next)

    def _produce(self, index: int, node_id: int) -> None:
        self.number += 1
        value = f"{self.name}/{self.number} ".encode() + self.rng.randbytes(self.rng.randrange(60))
        sent = SentRecord(self.name, self.number, value, index)
        self.history.ledger.sent.append(sent)
        data = bytearray(build([(self.host.clock.now_ms(), None, value, ())]))
        part = produce.PartitionProduceData(index=index, records=data)
        topics = [produce.TopicProduceData(name=TOPIC, partition_data=[part])]
        request = produce.ProduceRequest(acks=-1, timeout_ms=1_500, topic_data=topics)

        def answered(response: Any) -> None:
            if not isinstance(response, Unanswered):
                told = response.responses[0].partition_responses[0]
                name = ErrorCode(told.error_code).name
                self.history.codes[name] = self.history.codes.get(name, 0) + 1
                if told.error_code == 0:
                    sent.offset = told.base_offset
            self._again()

        self._to(node_id).ask(request, answered, timeout_ms=4_000, at_most=9)

    def _read(self, index: int, node_id: int) -> None:
        part = fetch.FetchPartition(partition=index, fetch_offset=self.positions[index], partition_max_bytes=1 << 16)
        request = fetch.FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[fetch.FetchTopic(topic=TOPIC, partitions=[part])],
        )

        def answered(response: Any) -> None:
            if not isinstance(response, Unanswered) and not response.error_code and response.responses:
                found = response.responses[0].partitions[0]
                for offset, value in records_of(bytes(found.records or b"")):
                    if offset >= self.positions[index]:
                        self.history.ledger.seen.setdefault(self.name, []).append((index, offset, value))
                        self.positions[index] = offset + 1
            self._again()

        self._to(node_id).ask(request, answered, timeout_ms=4_000, at_most=12)


def records_of(data: bytes) -> list[tuple[int, bytes]]:
    return [(each.offset, bytes(each.value or b"")) for batch in read(data) for each in batch.records()]


def held(log: Log, start: int, end: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    offset = max(start, log.start_offset)
    while offset < end:
        data = log.read(offset, 1 << 20, end_offset=end).bytes()
        records = [each for each in records_of(data) if offset <= each[0] < end]
        if not records:
            break
        found += records
        offset = records[-1][0] + 1
    return found


class ReplicaHistory:
    """The world, its nodes, and what their clients know."""

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        self.rng = Random(f"faults {seed}")
        self.script = Controller(world, Random(f"script {seed}"))
        self.flushes = seed % 2 == 1
        settings = _SETTINGS | ({"log.flush.interval.messages": "1"} if self.flushes else {})
        for node_id in range(1, _NODES + 1):
            self.script.hosts[node_id] = ReplicaHost(world, node_id, self.script, settings)
        self.hosts = self.script.hosts
        self.ledger = WorkloadLedger(TOPIC)
        self.codes: dict[str, int] = {}
        self.faults: dict[str, int] = {}
        self.committed = CommittedRecords()
        #: How far each replica's high watermark was looked at, by the log that it is of.
        self._looked: dict[tuple[int, int], tuple[Any, int]] = {}
        self.going = True

    def run(self, faults_ms: int = 40_000) -> None:
        """Work under faults, end the faults, check."""
        self.script.begin()
        for host in self.hosts.values():
            self._guard(host)
            host.start()
        self.world.run_for(500)
        for index in range(4):
            Client(self, f"client{index}")
        end_us = self.world.now_us + faults_ms * 1000
        while self.world.now_us < end_us:
            for _ in range(self.rng.randrange(1, 8)):
                self.world.run_for(self.rng.randrange(300))
                self.look()
            self._fault()
        self._heal()
        self._end()

    # ---- faults

    def _note(self, kind: str) -> None:
        self.faults[kind] = self.faults.get(kind, 0) + 1

    def _guard(self, host: ReplicaHost) -> None:
        def crashed() -> None:
            self._note("crash in an effect")
            self._down(host)

        host.host.on_crash = crashed

    def _may_lose_power(self, host: ReplicaHost) -> bool:
        """Does another member of each ISR that it is in stay up, or is all synced?"""
        if self.flushes:
            return True
        up = {each.node_id for each in self.hosts.values() if each.node is not None} - {host.node_id}
        return all(host.node_id not in known.isr or up & set(known.isr) for known in self.script.partitions())

    def _down(self, host: ReplicaHost) -> None:
        if self.rng.random() < 0.5 and self._may_lose_power(host):
            self._note("power off")
            host.power_off()
            self.script.fence(host.node_id)
        else:
            self._note("kill")
            host.kill()
            self._fence_later(host)
        self._start_later(host)

    def _fence_later(self, host: ReplicaHost) -> None:
        life = self.script.image.brokers[host.node_id].epoch

        def fence() -> None:
            if self.script.image.brokers[host.node_id].epoch == life and (
                host.node is None or host.node_id in self.script.cut_off
            ):
                self.script.fence(host.node_id)

        self.world.after(self.rng.randrange(*_FENCED_AFTER_MS) * 1000, fence, "fence")

    def _start_later(self, host: ReplicaHost) -> None:
        def start() -> None:
            if host.host.loop is not None:
                return
            try:
                host.start()
            except Crashed:
                self._note("crash in recovery")
                self._down(host)

        self.world.after(self.rng.randrange(500, _DOWN_MS) * 1000, start, "start")

    def _fault(self) -> None:
        host = self.rng.choice(list(self.hosts.values()))
        kinds = [self._kill, self._stop, self._crash, self._cut, self._isolate, self._pause, self._slow, self._move]
        self.rng.choice(kinds)(host)
        for each in self.hosts.values():
            assert each.failure is None, f"{each.host.name}: {each.failure}"

    def _kill(self, host: ReplicaHost) -> None:
        if host.node is not None:
            self._down(host)

    def _stop(self, host: ReplicaHost) -> None:
        if host.node is not None and not host.host.paused:
            self._note("stop")
            self.script.fence(host.node_id)
            try:
                host.stop()
            except Crashed:
                self._down(host)
            else:
                host.clean = True
                self._start_later(host)

    def _crash(self, host: ReplicaHost) -> None:
        if host.node is not None and self._may_lose_power(host):
            host.disk.crash_at = host.disk.effects + self.rng.randrange(200)

    def _cut(self, host: ReplicaHost) -> None:
        """One link between two nodes, one way or both."""
        self._note("cut")
        other = self.rng.choice([each for each in self.hosts.values() if each is not host])
        there, back = (host.host, other.host), (other.host, host.host)
        for source, target in self.rng.choice([[there], [back], [there, back]]):
            self.world.network.cut(source, target)
            self._later(partial(self.world.network.heal, source, target))

    def _isolate(self, host: ReplicaHost) -> None:
        """A node that sees neither the others nor the controller, and goes on serving clients: a zombie."""
        if host.node is None or host.node_id in self.script.cut_off:
            return
        self._note("isolate")
        self.script.cut_off.add(host.node_id)
        self._fence_later(host)
        for other in self.hosts.values():
            if other is not host:
                for source, target in ((host.host, other.host), (other.host, host.host)):
                    self.world.network.cut(source, target)
                    self._later(partial(self.world.network.heal, source, target))

        def back() -> None:
            self.script.cut_off.discard(host.node_id)
            self.unfence()

        self._later(back)

    def unfence(self) -> None:
        """Brokers that are up and heard of again."""
        for host in self.hosts.values():
            broker = self.script.image.brokers[host.node_id]
            if host.node is not None and broker.fenced and host.node_id not in self.script.cut_off:
                self.script.unfence(host.node_id)

    def _pause(self, host: ReplicaHost) -> None:
        self._note("pause")
        host.host.pause()
        self._later(host.host.resume)

    def _slow(self, host: ReplicaHost) -> None:
        self._note("slow")
        other = self.rng.choice([each for each in self.hosts.values() if each is not host])
        self.world.network.slow(host.host, other.host, self.rng.randrange(200_000))

    def _move(self, host: ReplicaHost) -> None:
        self._note("move leader")
        self.script.move_leader()

    def _later(self, mend: Callable[[], None]) -> None:
        self.world.after(self.rng.randrange(_DOWN_MS) * 1000, mend, "mend")

    # ---- checks

    def look(self) -> None:
        """While it goes: what is below high watermarks is the same everywhere, and members of the ISR hold it."""
        for node_id, host in self.hosts.items():
            for index in range(PARTITIONS):
                log = host.log(index)
                if log is None or host.host.loop is None:
                    continue
                known, position = self._looked.get((node_id, index), (None, 0))
                position = position if known is log else 0
                end = log.high_watermark
                if end > log.end_offset:
                    raise Broken(
                        f"{host.host.name} has the high watermark {end} in a log that ends at {log.end_offset}"
                    )
                self.committed.add_committed(host.host.name, index, held(log, position, end))
                self._looked[node_id, index] = log, max(position, end)
        for index, known in enumerate(self.script.partitions()):
            for node_id in known.isr:
                log = self.hosts[node_id].log(index)
                if log is not None and self.script.is_active(node_id):
                    self._is_holding(self.hosts[node_id], index, log)

    def _is_holding(self, host: ReplicaHost, index: int, log: Log) -> None:
        committed = self.committed.ends.get(index, 0)
        if log.end_offset < committed:
            raise Broken(
                f"{host.host.name} is in sync, ends at {log.end_offset} and {committed} are committed in {index}"
            )

    # ---- the end

    def _heal(self) -> None:
        self.world.network.heal_all()
        self.script.cut_off.clear()
        for host in self.hosts.values():
            host.disk.crash_at = None
            host.host.resume()
        for host in self.hosts.values():
            for other in self.hosts.values():
                if other is not host:
                    self.world.network.slow(host.host, other.host, 0)
        self.world.run_for(_DOWN_MS * 2)
        for host in self.hosts.values():
            if host.host.loop is None:
                host.start()
        self.unfence()
        self.world.run_for(2_000)
        self.going = False

    def _is_level(self) -> bool:
        for index, known in enumerate(self.script.partitions()):
            logs = [host.log(index) for host in self.hosts.values()]
            ends = {log.end_offset for log in logs if log is not None}
            marks = {log.high_watermark for log in logs if log is not None}
            if len(known.isr) != _NODES or len(ends) != 1 or marks != ends or None in logs:
                return False
        return True

    def _end(self) -> None:
        level = self.world.run_until(self._is_level, limit_ms=_CALM_MS)
        self.look()
        assert level, f"the replicas are not level after the faults: {self.described()}"
        logs: dict[int, list[tuple[int, bytes]]] = {}
        for index in range(PARTITIONS):
            bytes_of = []
            for host in self.hosts.values():
                log = host.log(index)
                assert log is not None
                logs[index] = held(log, 0, log.end_offset)
                bytes_of.append(b"".join(raw(log)))
                self.committed.check_in_sync(host.host.name, index, logs[index], log.end_offset)
            assert len(set(bytes_of)) == 1, f"the replicas of {index} differ byte by byte"
        check(self.ledger, logs, {})

    def described(self) -> list[Any]:
        found: list[Any] = []
        for index, known in enumerate(self.script.partitions()):
            ends = {
                node_id: (log.high_watermark, log.end_offset)
                for node_id, host in self.hosts.items()
                if (log := host.log(index)) is not None
            }
            found.append((known.leader, known.leader_epoch, known.isr, ends))
        return found

    @property
    def acknowledged(self) -> int:
        return self.ledger.acknowledged


def raw(log: Log) -> list[bytes]:
    """Every batch of the log, as it is stored."""
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, 1, end_offset=log.end_offset).bytes()
        found.append(data)
        *_, header = (batch.header for batch in read(data))
        offset = header.base_offset + header.last_offset_delta + 1
    return found


#: Of a replica: its records by offset, as (producer id, key, value), and its aborted transactions.
Compacted = tuple[dict[int, tuple[int, bytes | None, bytes | None]], list[AbortedTransaction]]


def compacted(log: Log) -> Compacted:
    """What a compacted log holds besides markers."""
    found: dict[int, tuple[int, bytes | None, bytes | None]] = {}
    for data in raw(log):
        for batch in read(data):
            if not batch.header.is_control:
                producer = batch.header.producer_id
                found |= {each.offset: (producer, each.key, each.value) for each in batch.records()}
    return found, log.aborted(log.start_offset, log.end_offset)


def check_compacted(name: str, replicas: list[Compacted]) -> None:
    """AssertionError if compacted replicas of records that all have a key of their own hold different things.

    Each replica is compacted at a time of its own: one may still hold what was aborted.
    """
    everything = {offset: record for records, _ in replicas for offset, record in records.items()}
    for records, _ in replicas:
        for offset, record in everything.items():
            assert records.get(offset, record) == record, f"the replicas of {name} differ at {offset}"
            if offset not in records:
                aborted = (each for held, of_log in replicas if offset in held for each in of_log)
                assert any(
                    each.producer_id == record[0] and each.first_offset <= offset <= each.last_offset
                    for each in aborted
                ), f"a replica of {name} lacks what is committed at {offset}"


def run_replicas(seed: int) -> ReplicaHistory:
    """A history by a seed; AssertionError when a promise is broken. Odd seeds sync each batch."""
    history = ReplicaHistory(seed)
    history.run()
    return history
