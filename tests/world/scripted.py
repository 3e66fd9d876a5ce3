"""A controller that is a script, and nodes that are told their metadata by it.

Rules:
- There is one image; every node is told of it late and in its order. A node that starts is told the newest before it
  serves, as one that has caught up to its own registration.
- Elections take members of the ISR that are active, and nobody else. A broker that was not shut down cleanly leaves the
  ISR when it registers, unless it is the last (KIP-966).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, cast

from ottla.broker.node import BrokerNode
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log.log import Log
from ottla.metadata.delta import Delta
from ottla.metadata.image import NO_LEADER, Image
from ottla.sim.node import NodeHost
from ottla.sim.world import World
from ottla.wire.api.alter_partition import AlterPartitionResponse, ResponsePartitionData, ResponseTopicData
from ottla.wire.record import registration
from ottla.wire.record.metadata import FeatureLevelRecord, PartitionChangeRecord, PartitionRecord, TopicRecord

TOPIC = "records"
PARTITIONS = 2
PORT = 9092
_METADATA_VERSION = 29


class ScriptedNode(BrokerNode):
    """A node that is told its metadata by the script."""

    script: Controller

    def _begin(self) -> None:
        self._make_parts()
        image = self.script.register(self)
        self._take_settings(image)
        with self._new_loading_pool() as pool:
            self._load_store(pool)
        self._broker_epoch = image.brokers[self.node_id].epoch
        self.image = Image.empty()
        self._follow(Image.empty(), image)
        self.leadership.started()
        cast(Any, self.controllers).ask_forever = partial(self.script.alter, self)
        self._undo.callback(self.groups.close)
        self._undo.callback(self.transactions.close)
        self.housekeeping.start()
        self._undo.callback(self.housekeeping.stop)
        self.replication.start()
        self._undo.callback(self.replication.stop)
        for listener in self.listeners:
            listener.serve()

    def told(self, image: Image) -> None:
        if not self.closed and image.offset > self.image.offset:
            self._follow(self.image, image)


class ReplicaHost(NodeHost):
    """A host of one scripted node."""

    def __init__(self, world: World, node_id: int, script: Controller, settings: dict[str, str]) -> None:
        super().__init__(world, f"node{node_id}", {"node.id": str(node_id)} | settings)
        self.node_id = node_id
        self.script = script
        #: Did the last process end in good order?
        self.clean = True

    def new_node(self, settings: Any, loop: Any, ports: Any) -> ScriptedNode:
        node = ScriptedNode(settings, loop, ports)
        node.script = self.script
        return node

    def log(self, partition: int) -> Log | None:
        return None if self.node is None else self.node.store.get(TopicPartition(TOPIC, partition))


class Controller:
    """The script: one image, told to every node late and in its order."""

    def __init__(self, world: World, rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.hosts: dict[int, ReplicaHost] = {}
        self.image = Image.empty()
        self.topic_id = Uuid(rng.randbytes(16))
        self.cut_off: set[int] = set()
        self.elections = self.expansions = self.shrinks = 0
        self._told_us: dict[int, int] = {}
        self._next_epoch = 100

    def begin(self) -> None:
        ids = list(self.hosts)
        self._change(
            [
                FeatureLevelRecord(name="metadata.version", feature_level=_METADATA_VERSION),
                TopicRecord(name=TOPIC, topic_id=self.topic_id),
                *(
                    PartitionRecord(
                        partition_id=index,
                        topic_id=self.topic_id,
                        replicas=ids[index:] + ids[:index],
                        isr=ids,
                        leader=ids[index],
                        leader_epoch=0,
                        partition_epoch=0,
                    )
                    for index in range(PARTITIONS)
                ),
            ]
        )

    def partitions(self) -> Any:
        return self.image.topics[TOPIC].partitions

    def _change(self, records: list[Any]) -> None:
        delta = Delta(self.image)
        for each in records:
            delta.replay(each)
        self.image = delta.image(self.image.offset + 1, 1, 0)
        for node_id in self.hosts:
            self._tell(node_id)

    def _tell(self, node_id: int) -> None:
        delay_us = self.rng.randrange(20_000) if self.rng.random() < 0.9 else self.rng.randrange(2_000_000)
        when = max(self._told_us.get(node_id, 0), self.world.now_us + delay_us)
        self._told_us[node_id] = when
        image, life = self.image, self.hosts[node_id].node

        def arrive() -> None:
            host = self.hosts[node_id]
            if host.node is not None and host.node is life and host.host.loop is not None:
                if node_id in self.cut_off:
                    self.world.after(100_000, arrive, "told later")
                else:
                    host.host.loop.call_soon(cast(ScriptedNode, host.node).told, image)

        self.world.at(when, arrive, "told")

    def register(self, node: BrokerNode) -> Image:
        """A process that starts: its registration, and the newest image with it."""
        node_id = node.node_id
        host = self.hosts[node_id]
        if not host.clean:
            self._leave_isr(node_id)
        host.clean = False
        self._next_epoch += 1
        addresses = [
            registration.BrokerEndpoint(name="PLAINTEXT", host=host.host.address, port=PORT, security_protocol=0)
        ]
        record = registration.RegisterBrokerRecord(
            broker_id=node_id,
            incarnation_id=Uuid(self.rng.randbytes(16)),
            broker_epoch=self._next_epoch,
            end_points=addresses,
            rack=f"rack{node_id}",
            fenced=False,
        )
        self._change([record])
        # Of what has no leader, when the registration is told: the broker is active by then.
        self.world.after(1000, self._elect, "elect")
        return self.image

    def is_active(self, node_id: int) -> bool:
        broker = self.image.brokers.get(node_id)
        return broker is not None and broker.is_active

    def fence(self, node_id: int) -> None:
        if self.is_active(node_id):
            change = registration.BrokerRegistrationChangeRecord(
                broker_id=node_id, broker_epoch=self.image.brokers[node_id].epoch, fenced=1
            )
            self._change([change])
            self._leave_isr(node_id)

    def unfence(self, node_id: int) -> None:
        """A broker that was cut off is heard of again."""
        change = registration.BrokerRegistrationChangeRecord(
            broker_id=node_id, broker_epoch=self.image.brokers[node_id].epoch, fenced=-1
        )
        self._change([change])
        self._elect()

    def _leave_isr(self, node_id: int) -> None:
        records = []
        for index, known in enumerate(self.partitions()):
            if node_id in known.isr and len(known.isr) > 1:
                isr = [each for each in known.isr if each != node_id]
                self.shrinks += 1
                leader = known.leader
                change = PartitionChangeRecord(topic_id=self.topic_id, partition_id=index, isr=isr)
                if leader in (node_id, NO_LEADER):
                    change.leader = next((each for each in isr if self.is_active(each)), NO_LEADER)
                    self.elections += change.leader >= 0
                records.append(change)
            elif known.leader == node_id:
                records.append(PartitionChangeRecord(topic_id=self.topic_id, partition_id=index, leader=NO_LEADER))
        if records:
            self._change(records)

    def _elect(self) -> None:
        records = []
        for index, known in enumerate(self.partitions()):
            if known.leader == NO_LEADER:
                leader = next((each for each in known.isr if self.is_active(each)), NO_LEADER)
                if leader >= 0:
                    self.elections += 1
                    records.append(PartitionChangeRecord(topic_id=self.topic_id, partition_id=index, leader=leader))
        if records:
            self._change(records)

    def move_leader(self) -> None:
        index = self.rng.randrange(PARTITIONS)
        known = self.partitions()[index]
        able = [each for each in known.isr if self.is_active(each) and each != known.leader]
        if able and known.leader >= 0:
            self.elections += 1
            leader = self.rng.choice(able)
            self._change([PartitionChangeRecord(topic_id=self.topic_id, partition_id=index, leader=leader)])

    # ---- AlterPartition

    def alter(self, node: BrokerNode, request: Any, done: Callable[[Any], None]) -> None:
        def arrive() -> None:
            if node.node_id in self.cut_off:
                self.world.after(100_000, arrive, "alter later")
                return
            response = self._altered(node, request)
            self.world.after(self.rng.randrange(300_000), partial(answer, response), "altered")

        def answer(response: Any) -> None:
            host = self.hosts[node.node_id]
            if host.node is node and host.host.loop is not None:
                host.host.loop.call_soon(done, response)

        self.world.after(self.rng.randrange(300_000), arrive, "alter")

    def _altered(self, node: BrokerNode, request: Any) -> AlterPartitionResponse:
        response = AlterPartitionResponse()
        broker = self.image.brokers[node.node_id]
        if broker.epoch != request.broker_epoch or not broker.is_active:
            response.error_code = ErrorCode.STALE_BROKER_EPOCH
            return response
        for topic in request.topics:
            response.topics.append(
                ResponseTopicData(
                    topic_id=topic.topic_id,
                    partitions=[self._alter_one(node.node_id, each) for each in topic.partitions],
                )
            )
        return response

    def _alter_one(self, node_id: int, asked: Any) -> ResponsePartitionData:
        index = asked.partition_index
        known = self.partitions()[index]
        code = ErrorCode.NONE
        if known.leader != node_id or asked.leader_epoch < known.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.partition_epoch != known.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            not self.is_active(each.broker_id) or self.image.brokers[each.broker_id].epoch != each.broker_epoch
            for each in asked.new_isr_with_epochs
        ):
            code = ErrorCode.INELIGIBLE_REPLICA
        if code is not ErrorCode.NONE:
            return ResponsePartitionData(partition_index=index, error_code=code)
        isr = [each.broker_id for each in asked.new_isr_with_epochs]
        self.expansions += len(isr) > len(known.isr)
        self.shrinks += len(isr) < len(known.isr)
        self._change([PartitionChangeRecord(topic_id=self.topic_id, partition_id=index, isr=isr)])
        now = self.partitions()[index]
        return ResponsePartitionData(
            partition_index=index,
            leader_id=now.leader,
            leader_epoch=now.leader_epoch,
            isr=list(now.isr),
            partition_epoch=now.partition_epoch,
        )
