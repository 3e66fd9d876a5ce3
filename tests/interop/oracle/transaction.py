"""A transactional producer as its requests: each with what the server gave it before."""

import time
from dataclasses import dataclass, field
from typing import Any

from ottla.wire.schema import Struct, fields
from tests.interop.oracle.side import Side
from tests.interop.oracle.test_record import batch, data

CONCURRENT_TRANSACTIONS = 51
#: What a coordinator answers while it is not there yet.
NOT_YET = (14, 15, 16, CONCURRENT_TRANSACTIONS)
PATIENCE_S = 60.0


@dataclass
class Producer:
    """One transactional producer on one server: the requests of a client, each with what the server gave it before."""

    side: Side
    name: str
    producer_id: int = -1
    epoch: int = -1
    #: the next sequence of each partition
    sequences: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key_type in (1, 0):  # the first who asks makes the internal topics
            self._settled("FindCoordinator", 4, key_type=key_type, coordinator_keys=[self.name])

    def ask(self, api: str, version: int, **values: Any) -> Any:
        """Ask until the answer is not that the server is busy; note the last answer."""
        reply = self._settled(api, version, **values)
        _put_in_order(reply)
        self.side.note(f"{api} v{version}", reply, version)
        return reply

    def _settled(self, api: str, version: int, **values: Any) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            reply = self.side.ask(api, version, note=False, **values)
            if not _codes(reply) & set(NOT_YET) or time.monotonic() > deadline:
                return reply
            time.sleep(0.02)

    def init(self, version: int = 5, keep: bool = False, timeout_ms: int = 60_000) -> Any:
        """InitProducerId, with the id and epoch it has when `keep`."""
        had = {"producer_id": self.producer_id, "producer_epoch": self.epoch} if keep else {}
        reply = self.ask(
            "InitProducerId", version, transactional_id=self.name, transaction_timeout_ms=timeout_ms, **had
        )
        if reply.error_code == 0:
            self.producer_id, self.epoch, self.sequences = reply.producer_id, reply.producer_epoch, {}
        return reply

    @property
    def identity(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def add(self, topic: str, *partitions: int, version: int = 3) -> None:
        topics = [{"name": topic, "partitions": list(partitions)}]
        identity = {f"v3_and_below_{name}": value for name, value in self.identity.items()}
        self.ask("AddPartitionsToTxn", version, v3_and_below_topics=topics, **identity)

    def add_offsets(self, group: str, version: int = 3) -> None:
        self.ask("AddOffsetsToTxn", version, group_id=group, **self.identity)

    def put(self, topic: str, partition: int = 0, version: int = 11, transactional_id: str | None = "") -> None:
        records = batch(
            2,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get(partition, 0),
            transactional=True,
        )
        named = self.name if transactional_id == "" else transactional_id
        reply = self.ask(
            "Produce",
            version,
            acks=-1,
            timeout_ms=10_000,
            transactional_id=named,
            topic_data=data(topic, records, partition),
        )
        if not _codes(reply) - {0}:
            self.sequences[partition] = self.sequences.get(partition, 0) + 2

    def commit_offset(self, group: str, topic: str, offset: int, version: int = 4) -> None:
        partitions = [{"partition_index": 0, "committed_offset": offset}]
        self.ask(
            "TxnOffsetCommit",
            version,
            group_id=group,
            member_id="",
            generation_id_or_member_epoch=-1,
            topics=[{"name": topic, "partitions": partitions}],
            **self.identity,
        )

    def end(self, committed: bool, version: int = 4) -> None:
        reply = self.ask("EndTxn", version, committed=committed, **self.identity)
        if version >= 5 and reply.error_code == 0:
            self.producer_id, self.epoch, self.sequences = reply.producer_id, reply.producer_epoch, {}


def _codes(reply: Any) -> set[int]:
    """All error codes in a reply."""
    found: set[int] = set()
    for name in (each.name for each in fields(type(reply))):
        value = getattr(reply, name)
        if name in ("error_code", "partition_error_code"):
            found.add(value)
        elif isinstance(value, list):
            found |= {code for each in value if isinstance(each, Struct) for code in _codes(each)}
    return found


def _put_in_order(reply: Any) -> None:
    """Apache keeps partitions in hash maps: their order in a reply says nothing."""
    for name in (each.name for each in fields(type(reply))):
        value = getattr(reply, name)
        if isinstance(value, list) and all(isinstance(each, Struct) for each in value):
            for each in value:
                _put_in_order(each)
            if name in ("topics", "results_by_partition"):
                setattr(reply, name, sorted(value, key=repr))
