"""A cluster of many brokers, for tests of the controller: each broker is what it asks for and how far it has read."""

from typing import Any

from ottla.controller.controller import NEWEST
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.metadata.image import TOPIC, PartitionImage
from ottla.wire.api import alter_partition as alter
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.api.broker_registration import Feature
from ottla.wire.api.create_topics import CreatableReplicaAssignment
from ottla.wire.record.metadata import ConfigRecord
from tests.controller.scene import Cluster, registration


class Fleet(Cluster):
    """Brokers that registered and are unfenced; time stands still until `wait`."""

    def __init__(
        self, count: int = 3, *, directories: int = 1, features: dict[str, int] | None = None, **settings: str
    ):
        # The controller is a node of its own, unless a test makes it one of the brokers.
        super().__init__(brokers=0, directories=directories, features=features, **{"node_id": "3000"} | settings)
        self.incarnations: dict[int, int] = {}
        self.directories = directories
        for broker_id in range(1, count + 1):
            self.start(broker_id)

    def register(self, broker_id: int, *, clean: bool = True, version: int = NEWEST, **fields: Any) -> int:
        """A new incarnation of the broker registers; its epoch."""
        self.incarnations[broker_id] = self.incarnations.get(broker_id, 0) + 1
        request = registration(broker_id, incarnation=self.incarnations[broker_id], directories=self.directories)
        before = self.image.brokers.get(broker_id)
        if clean and before is not None:
            request.previous_broker_epoch = before.epoch
        for name, value in fields.items():
            setattr(request, name, value)
        epoch: int = self.ask(request, version).broker_epoch
        return epoch

    def start(self, broker_id: int, *, clean: bool = True) -> None:
        """Register and be unfenced."""
        self.register(broker_id, clean=clean)
        assert not self.beat(broker_id).is_fenced

    def beat(self, broker_id: int, *, offset: int | None = None, **fields: Any) -> BrokerHeartbeatResponse:
        """A heartbeat of a broker that has read everything, or up to `offset`."""
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].epoch,
            current_metadata_offset=self.image.offset if offset is None else offset,
        )
        for name, value in fields.items():
            setattr(request, name, value)
        response: BrokerHeartbeatResponse = self.ask(request)
        return response

    def wait(self, ms: int) -> None:
        """Let time pass, and the controller do what is due."""
        self.now_ms += ms
        while (due := self.controller.deadline_ms()) is not None and due <= self.now_ms:
            self.append(self.controller.time_passed(self.image, self.now_ms).records)

    def silence(self, *broker_ids: int) -> None:
        """Only the others are heard of until these are fenced."""
        timeout_ms = self.settings.broker_session_timeout_ms
        for _ in range(2):
            self.wait(timeout_ms * 2 // 3)
            for broker_id, broker in self.image.brokers.items():
                if broker_id not in broker_ids and not broker.fenced:
                    self.beat(broker_id, want_shut_down=broker.in_controlled_shutdown)
        assert all(self.image.brokers[broker_id].fenced for broker_id in broker_ids)

    def topic(self, name: str, *replicas: list[int], configs: dict[str, str | None] | None = None) -> Uuid:
        """Make a topic with these replicas of its partitions."""
        assignments = [CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in enumerate(replicas)]
        result = self.create(name, assignments=assignments, configs=configs)
        assert result.error_code == ErrorCode.NONE, result
        return Uuid(result.topic_id)

    def features(self) -> list[Feature]:
        """What a broker of this program can run."""
        return registration().features

    def set(self, topic: str, key: str, value: str) -> None:
        """Set one setting of a topic."""
        self.append([ConfigRecord(resource_type=TOPIC, resource_name=topic, name=key, value=value)])

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        return self.image.topics[name].partitions[index]

    def _wanted(self, name: str, isr: list[int], index: int) -> alter.RequestPartitionData:
        partition, brokers = self.partition(name, index), self.image.brokers
        return alter.RequestPartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr=isr,
            new_isr_with_epochs=[
                alter.BrokerState(broker_id=each, broker_epoch=brokers[each].epoch if each in brokers else -1)
                for each in isr
            ],
            leader_recovery_state=partition.leader_recovery_state,
        )

    def _alter(
        self, name: str, asks: int, wanted: list[alter.RequestPartitionData], version: int
    ) -> list[alter.ResponsePartitionData]:
        brokers = self.image.brokers
        request = alter.AlterPartitionRequest(
            broker_id=asks,
            broker_epoch=brokers[asks].epoch if asks in brokers else -1,
            topics=[alter.RequestTopicData(topic_id=self.image.topics[name].topic_id, partitions=wanted)],
        )
        answers: list[alter.ResponsePartitionData] = self.ask(request, version).topics[0].partitions
        return answers

    def alter(
        self,
        name: str,
        isr: list[int],
        *,
        index: int = 0,
        version: int = NEWEST,
        asks: int | None = None,
        **fields: Any,
    ) -> alter.ResponsePartitionData:
        """The leader, or `asks`, wants this ISR."""
        data = self._wanted(name, isr, index)
        for field, value in fields.items():
            setattr(data, field, value)
        asks = self.partition(name, index).leader if asks is None else asks
        return self._alter(name, asks, [data], version)[0]

    def alter_all(self, name: str, isr: list[int]) -> None:
        """The leader of all partitions of a topic wants this ISR for each, in one request."""
        wanted = [self._wanted(name, isr, index) for index in range(len(self.image.topics[name].partitions))]
        answers = self._alter(name, self.partition(name).leader, wanted, NEWEST)
        assert not any(each.error_code for each in answers)

    def refused(self, request: Any, version: int = NEWEST) -> ErrorCode:
        """The code with which a whole request fails; nothing is written."""
        before = len(self.log)
        try:
            self.ask(request, version)
        except KafkaError as error:
            assert len(self.log) == before
            return error.code
        raise AssertionError(f"{request!r} was not refused")
