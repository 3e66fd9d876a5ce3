"""What actors of a wide history do to the node's storage: trim, grow, move between directories, keep share state."""

from __future__ import annotations

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.sim.machine import Machine
from ottla.wire.api import initialize_share_group_state as initialize
from ottla.wire.api import read_share_group_state as read_state
from ottla.wire.api import write_share_group_state as write_state
from ottla.wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.sim.actor import Actor, Ask, Script
from tests.sim.client import IdempotentWriter

DIRECTORIES = ("/data", "/more")
_PAUSE_MS_MAX = 1500
_PARTITIONS_MAX = 9
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


class Trimmer(Actor):
    """Deletes records of a writer's topic, up to what was acknowledged."""

    def __init__(self, name: str, machine: Machine, seed: int, writer: IdempotentWriter) -> None:
        super().__init__(name, machine, seed)
        self.writer = writer

    def script(self) -> Script:
        while not self.ending:
            partition = self.random.randrange(self.writer.partitions)
            ends = [
                each.base_offset + len(each.values)
                for each in self.writer.sent
                if each.partition == partition and each.base_offset is not None
            ]
            if ends:
                offset = max(0, max(ends) - self.random.randrange(20))
                wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
                topic = DeleteRecordsTopic(name=self.writer.topic, partitions=[wanted])
                request = DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)
                answer = yield Ask(request, 2, lambda found: found.topics[0].partitions[0])
                assert answer.error_code == 0, f"{self.name}: {answer}"
                assert answer.low_watermark >= offset, f"{self.name}: {answer}"
            yield self.random.randrange(_PAUSE_MS_MAX)


class Grower(Actor):
    """Gives a topic one partition after the other."""

    def __init__(self, name: str, machine: Machine, seed: int, topic: str, partitions: int) -> None:
        super().__init__(name, machine, seed)
        self.topic = topic
        self.partitions = partitions
        self.maybe = partitions

    def script(self) -> Script:
        while not self.ending and self.partitions < _PARTITIONS_MAX:
            self.maybe = self.partitions + 1
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=self.topic, count=self.maybe, assignments=None)], timeout_ms=10_000
            )
            answer = yield Ask(request, 3, lambda found: found.results[0])
            # A repeated request may find that the first has done it.
            assert answer.error_code in (0, ErrorCode.INVALID_PARTITIONS), f"{self.name}: {answer}"
            self.partitions = self.maybe
            yield self.random.randrange(2 * _PAUSE_MS_MAX)


class Mover(Actor):
    """Puts partitions into the other directory, the coordinators' as well."""

    def __init__(self, name: str, machine: Machine, seed: int, topics: list[str]) -> None:
        super().__init__(name, machine, seed)
        self.topics = [*topics, *_INTERNAL]

    def script(self) -> Script:
        while not self.ending:
            topic = AlterReplicaLogDirTopic(name=self.random.choice(self.topics), partitions=[self.random.randrange(2)])
            wanted = AlterReplicaLogDir(path=self.random.choice(DIRECTORIES), topics=[topic])
            request = AlterReplicaLogDirsRequest(dirs=[wanted])
            answer = yield Ask(request, 2, lambda found: found.results[0].partitions[0])
            # A coordinator's topic is made when it is first needed.
            assert answer.error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"{self.name}: {answer}"
            yield self.random.randrange(_PAUSE_MS_MAX)


class StateKeeper(Actor):
    """Stores the state of a share partition, as its leader does: a start offset that grows, and batches behind it."""

    def __init__(self, name: str, machine: Machine, seed: int, topic_id: Uuid) -> None:
        super().__init__(name, machine, seed)
        self.topic_id = topic_id
        #: The start offset that was confirmed, -1 before the state was begun, and the one under way.
        self.start = -1
        self.maybe = -1

    def script(self) -> Script:
        self.maybe = 0
        part = initialize.PartitionData(partition=0, state_epoch=0, start_offset=0)
        answer = yield Ask(
            initialize.InitializeShareGroupStateRequest(
                group_id=self.name, topics=[initialize.InitializeStateData(topic_id=self.topic_id, partitions=[part])]
            ),
            0,
            lambda found: found.results[0].partitions[0],
        )
        assert answer.error_code == 0, f"{self.name}: {answer}"
        self.start = 0
        while not self.ending:
            self.maybe = self.start + 1
            batch = write_state.StateBatch(
                first_offset=self.maybe, last_offset=self.maybe + 3, delivery_state=0, delivery_count=2
            )
            written = write_state.PartitionData(
                partition=0,
                state_epoch=0,
                leader_epoch=0,
                start_offset=self.maybe,
                delivery_complete_count=0,
                state_batches=[batch],
            )
            answer = yield Ask(
                write_state.WriteShareGroupStateRequest(
                    group_id=self.name,
                    topics=[write_state.WriteStateData(topic_id=self.topic_id, partitions=[written])],
                ),
                1,
                lambda found: found.results[0].partitions[0],
            )
            assert answer.error_code == 0, f"{self.name}: {answer}"
            self.start = self.maybe
            yield self.random.randrange(_PAUSE_MS_MAX // 4)

    def question(self) -> tuple[read_state.ReadShareGroupStateRequest, int]:
        """What asks for the state, and its version."""
        part = read_state.PartitionData(partition=0, leader_epoch=0)
        topic = read_state.ReadStateData(topic_id=self.topic_id, partitions=[part])
        return read_state.ReadShareGroupStateRequest(group_id=self.name, topics=[topic]), 0

    def check(self, found: read_state.PartitionResult) -> None:
        """Is this what was confirmed, or what may have been stored?"""
        if self.start < 0 and found.error_code == ErrorCode.INVALID_REQUEST:
            # Nothing was confirmed, and nothing is there.
            return
        assert found.error_code == 0, found
        assert found.start_offset in (self.start, self.maybe), f"{found}: not {self.start} or {self.maybe}"
        if found.start_offset > 0:
            [batch] = found.state_batches
            assert (batch.first_offset, batch.last_offset, batch.delivery_count) == (
                found.start_offset,
                found.start_offset + 3,
                2,
            )
