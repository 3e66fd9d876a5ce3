"""The clients of a node that dies: each remembers what it was promised, and asks again where it got no answer.

Rules:
- A worker repeats a request until it is answered; what it repeats is the same bytes, as an idempotent producer must.
- Only a lost connection is forgiven. Every error code that a node of one replica has no reason to give fails the run.
- What a worker saw it keeps in plain lists, which `check.py` reads when all workers have ended.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Any, NamedTuple

from ottla.kernel.error import ErrorCode
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import build
from ottla.wire.codec import Codec
from tests.broker.wire_client import WireClient
from tests.crash.inventory import fetch, read_batches
from tests.crash.pause import pause

#: What a node that has just started says while it reads its coordinators' logs, and a marker that is not written yet.
_AGAIN = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS}
)
#: Several starts of a node on a machine that does many other things.
_PATIENCE_S = 400.0
_BATCH_RECORDS_MAX = 20
_RECORD_BYTES_MAX = 400


class Sent(NamedTuple):
    """A batch: where it is to be, and what is in it. `base_offset` is None while nobody has acknowledged it."""

    partition: int
    values: tuple[bytes, ...]
    base_offset: int | None


class Transfer(NamedTuple):
    """A transaction over two partitions, and how it was to end."""

    values: tuple[tuple[bytes, ...], tuple[bytes, ...]]
    committed: bool
    #: The node has said that it ended so.
    acknowledged: bool


class Worker(Thread):
    """One client. `turn` is called until `finish`; it may raise OSError where the node went away."""

    def __init__(self, bootstrap: str, topic: str, seed: str) -> None:
        super().__init__(name=f"{type(self).__name__} {topic}", daemon=True)
        self.bootstrap = bootstrap
        self.topic = topic
        self.random = random.Random(seed)
        self.failure: BaseException | None = None
        self.answers = 0
        self._ending = Event()
        self._client: WireClient | None = None

    def finish(self) -> None:
        """Let it come to the end of its turn."""
        self._ending.set()
        self.join(_PATIENCE_S)
        if self.failure is not None:
            raise self.failure
        assert not self.is_alive(), f"{self.name} does not end"

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                self.turn()
            self.last_turn()
        except BaseException as error:
            self.failure = error
        finally:
            self._drop()

    def turn(self) -> None:
        raise AssertionError("every worker has its own turn")

    def last_turn(self) -> None:
        """What is left to do when it is told to end."""

    def ask(self, request: Any, version: int, *, until: Callable[[Any], Any] | None = None) -> Any:
        """The answer, however often the node dies meanwhile. `until` takes the part of it that has the error code."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                if self._client is None:
                    self._client = WireClient(self.bootstrap)
                answer = self._client.ask(request, version)
            except OSError:
                self._drop()
                assert time.monotonic() < deadline, f"{self.name} finds no node"
                self._ending.wait(0.01) if not self._ending.is_set() else pause(0.01)
                continue
            part = until(answer) if until else answer
            if part.error_code in _AGAIN:
                assert time.monotonic() < deadline, f"{self.name}: {part}"
                continue
            assert part.error_code == 0, f"{self.name}: {ErrorCode(part.error_code)!r} {part}"
            self.answers += 1
            return part

    def _drop(self) -> None:
        if self._client is not None:
            self._client.sock.close()
            self._client = None

    def values(self, label: str) -> tuple[bytes, ...]:
        """The values of one batch: each begins with a name that is given once."""
        return tuple(
            f"{label}/{index} ".encode() + self.random.randbytes(self.random.randrange(_RECORD_BYTES_MAX))
            for index in range(self.random.randint(1, _BATCH_RECORDS_MAX))
        )

    def produce(self, data: bytes, partition: int, transactional_id: str | None = None) -> int:
        """Write a batch with acks=all; the base offset."""
        part = PartitionProduceData(index=partition, records=data)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[part])],
        )
        answer = self.ask(request, 12, until=lambda found: found.responses[0].partition_responses[0])
        offset: int = answer.base_offset
        return offset

    def init_producer(self, transactional_id: str | None = None) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000)
        found = self.ask(request, 5)
        return found.producer_id, found.producer_epoch


class IdempotentProducer(Worker):
    """Writes batches of every codec into all partitions of its topic, one at a time."""

    def __init__(self, bootstrap: str, topic: str, seed: str, partitions: int, name: str) -> None:
        super().__init__(bootstrap, topic, seed)
        self.sent: list[Sent] = []
        self._label = name
        self._identity: tuple[int, int] | None = None
        self._sequences = [0] * partitions

    def turn(self) -> None:
        if self._identity is None:
            self._identity = self.init_producer()
        producer_id, epoch = self._identity
        partition = self.random.randrange(len(self._sequences))
        values = self.values(f"{self._label}/{len(self.sent)}")
        now_ms = time.time_ns() // 1_000_000
        data = build(
            [(now_ms, b"key", value, ()) for value in values],
            codec=Codec(len(self.sent) % len(Codec)),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequences[partition],
        )
        self.sent.append(Sent(partition, values, None))
        offset = self.produce(data, partition)
        self.sent[-1] = Sent(partition, values, offset)
        self._sequences[partition] += len(values)


class TransactionalProducer(Worker):
    """Writes into two partitions in one transaction, and commits two of three."""

    def __init__(self, bootstrap: str, topic: str, seed: str) -> None:
        super().__init__(bootstrap, topic, seed)
        self.transfers: list[Transfer] = []
        self._id = f"id-{topic}"
        self._identity: tuple[int, int] | None = None

    def turn(self) -> None:
        if self._identity is None:
            self._identity = self.init_producer(self._id)
        number = len(self.transfers)
        sides = (self.values(f"{number}/left"), self.values(f"{number}/right"))
        committed = number % 3 != 1
        self.transfers.append(Transfer(sides, committed, acknowledged=False))
        producer_id, epoch = self._identity
        for partition, values in enumerate(sides):
            now_ms = time.time_ns() // 1_000_000
            data = build(
                [(now_ms, None, value, ()) for value in values],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=0,
                transactional=True,
            )
            self.produce(data, partition, self._id)
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=committed
        )
        # The second protocol of transactions (KIP-890) gives every transaction an epoch of its own.
        ended = self.ask(request, 5)
        self._identity = (ended.producer_id, ended.producer_epoch)
        self.transfers[-1] = Transfer(sides, committed, acknowledged=True)


class Reader(Worker):
    """Follows one partition from its start, and keeps what it was served."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        super().__init__(bootstrap, topic, "")
        self.partition = partition
        self.served: list[tuple[int, bytes | None]] = []
        self.high_watermark = 0
        self._offset = 0

    def turn(self) -> None:
        try:
            if self._client is None:
                self._client = WireClient(self.bootstrap)
            found = fetch(self._client, (self.topic, self.partition), self._offset, wait_ms=100)
        except OSError:
            self._drop()
            self._ending.wait(0.02)
            return
        self.answers += 1
        # One replica has all there is: what was served once is there, whatever died since.
        assert found.high_watermark >= self.high_watermark, f"{self.name}: the high watermark went back"
        self.high_watermark = found.high_watermark
        for header, records in read_batches(found):
            assert header.base_offset == self._offset, f"{self.name}: {header.base_offset} comes after {self._offset}"
            assert header.last_offset < found.high_watermark, f"{self.name} was served past the high watermark"
            self.served += [(record.offset, record.value) for record in records]
            self._offset = header.last_offset + 1
