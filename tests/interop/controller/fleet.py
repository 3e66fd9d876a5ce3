"""Brokers that exist as requests only: what each says to the controller, and how far it has read."""

import time
from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.metadata.feature import SUPPORTED
from ottla.metadata.image import PartitionImage
from ottla.wire.api import alter_partition as alter
from ottla.wire.api import alter_partition_reassignments as reassign
from ottla.wire.api import assign_replicas_to_dirs as assign
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.api.broker_registration import BrokerRegistrationRequest, Feature, Listener
from ottla.wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.interop.controller.apache import SESSION_MS
from tests.interop.controller.duel import Duel
from tests.interop.server import CLUSTER_ID

_TEND_S = SESSION_MS / 5000
_GIVE_UP_S = 30.0
_TOPIC = 2


class Fleet:
    """The brokers of one test: their ids begin at `first`, the topics' names with it."""

    def __init__(self, duel: Duel, first: int) -> None:
        self.duel = duel
        self.first = first
        self.incarnations: dict[int, int] = {}
        #: Broker -> when it was heard of last; those that live.
        self.alive: dict[int, float] = {}

    def name(self, topic: str) -> str:
        return f"{topic}-{self.first}"

    def broker(self, number: int) -> int:
        return self.first + number

    def directories(self, number: int) -> list[Uuid]:
        """Two directories of a broker."""
        return [Uuid(self.broker(number).to_bytes(15) + bytes([each])) for each in (1, 2)]

    def register(self, number: int, *, clean: bool = True, version: int | None = None, **more: Any) -> Any:
        """A new incarnation, or with `again` the one that there is."""
        broker_id = self.broker(number)
        if not more.pop("again", False):
            self.incarnations[broker_id] = self.incarnations.get(broker_id, 0) + 1
        before = self.duel.image.brokers.get(broker_id)
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=Uuid(broker_id.to_bytes(8) + self.incarnations[broker_id].to_bytes(8)),
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0)],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED.items()
            ],
            rack=None,
            log_dirs=self.directories(number),
            previous_broker_epoch=before.epoch if clean and before is not None else -1,
        )
        for name, value in more.items():
            setattr(request, name, value)
        return self.duel.ask(request, version)

    def beat(self, number: int, *, offset: int | None = None, **more: Any) -> Any:
        """A heartbeat of a broker that has read everything, or up to `offset`."""
        broker_id = self.broker(number)
        broker = self.duel.image.brokers.get(broker_id)
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=-1 if broker is None else broker.epoch,
            current_metadata_offset=self.duel.image.offset if offset is None else offset,
        )
        for name, value in more.items():
            setattr(request, name, value)
        answer = self.duel.ask(request)
        if not isinstance(answer, ErrorCode):
            self.alive[broker_id] = time.monotonic()
        return answer

    def start(self, *numbers: int, clean: bool = True) -> None:
        for number in numbers:
            assert not isinstance(self.register(number, clean=clean), ErrorCode)
            assert not self.beat(number).is_fenced

    def tend(self) -> None:
        """Keep those alive that live."""
        for broker_id, heard in list(self.alive.items()):
            if time.monotonic() - heard > _TEND_S:
                self.beat(broker_id - self.first)

    def die(self, number: int) -> None:
        """The broker is not heard of any more."""
        self.alive.pop(self.broker(number), None)

    def await_fenced(self, number: int) -> None:
        """Wait until the controller has noticed that a broker is silent."""
        deadline = time.monotonic() + _GIVE_UP_S
        while not self.duel.image.brokers[self.broker(number)].fenced or self._is_heard(number):
            assert time.monotonic() < deadline, f"Apache does not fence\n{self.duel.told()}"
            self.tend()
            time.sleep(0.05)
            self.duel.settle()

    def retire(self) -> None:
        """Fence all, so that no broker of this test falls silent within the next one."""
        for broker_id, broker in self.duel.image.brokers.items():
            if self.first <= broker_id < self.first + 1000 and not broker.fenced:
                self.beat(broker_id - self.first, want_fence=True, want_shut_down=True)

    def _is_heard(self, number: int) -> bool:
        broker = self.duel.image.brokers[self.broker(number)]
        return self.duel.is_heard(broker.broker_id, broker.epoch)

    def create(self, topic: str, *replicas: list[int], **configs: str) -> Any:
        made = CreatableTopic(
            name=self.name(topic),
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=[self.broker(each) for each in numbers])
                for index, numbers in enumerate(replicas)
            ],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        return self.duel.ask(CreateTopicsRequest(topics=[made], timeout_ms=10_000))

    def configure(self, topic: str, key: str, value: str) -> Any:
        config = AlterableConfig(name=key, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=self.name(topic), configs=[config])
        return self.duel.ask(IncrementalAlterConfigsRequest(resources=[resource]))

    def partition(self, topic: str, index: int = 0) -> PartitionImage:
        return self.duel.image.topics[self.name(topic)].partitions[index]

    def alter(self, topic: str, isr: list[int], *, index: int = 0, version: int | None = None, **more: Any) -> Any:
        """The leader, or the broker `asks`, wants this ISR."""
        partition, brokers = self.partition(topic, index), self.duel.image.brokers
        asks = more.pop("asks", partition.leader)
        ids = [self.broker(each) for each in isr]
        data = alter.RequestPartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            leader_recovery_state=0,
        )
        if version == 2:
            data.new_isr = ids
        else:
            data.new_isr_with_epochs = [
                alter.BrokerState(broker_id=each, broker_epoch=brokers[each].epoch if each in brokers else -1)
                for each in ids
            ]
        for name, value in more.items():
            setattr(data, name, value)
        topic_id = self.duel.image.topics[self.name(topic)].topic_id
        request = alter.AlterPartitionRequest(
            broker_id=asks,
            broker_epoch=brokers[asks].epoch if asks in brokers else -1,
            topics=[alter.RequestTopicData(topic_id=topic_id, partitions=[data])],
        )
        return self.duel.ask(request, version)

    def elect(self, topic: str, kind: int, index: int = 0) -> Any:
        wanted = TopicPartitions(topic=self.name(topic), partitions=[index])
        return self.duel.ask(ElectLeadersRequest(election_type=kind, topic_partitions=[wanted], timeout_ms=10_000))

    def move(self, topic: str, replicas: list[int] | None, *, index: int = 0, **more: Any) -> Any:
        ids = None if replicas is None else [self.broker(each) for each in replicas]
        partition = reassign.ReassignablePartition(partition_index=index, replicas=ids)
        moved = reassign.ReassignableTopic(name=self.name(topic), partitions=[partition])
        return self.duel.ask(reassign.AlterPartitionReassignmentsRequest(topics=[moved], timeout_ms=10_000, **more))

    def assign(self, number: int, directory: Uuid, topic: str, *indexes: int) -> Any:
        broker = self.duel.image.brokers[self.broker(number)]
        parts = [assign.RequestPartitionData(partition_index=index) for index in indexes]
        topic_id = self.duel.image.topics[self.name(topic)].topic_id
        return self.duel.ask(
            assign.AssignReplicasToDirsRequest(
                broker_id=broker.broker_id,
                broker_epoch=broker.epoch,
                directories=[
                    assign.RequestDirectoryData(
                        id=directory, topics=[assign.RequestTopicData(topic_id=topic_id, partitions=parts)]
                    )
                ],
            )
        )
