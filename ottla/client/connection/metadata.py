"""The client's view of the cluster: brokers, topics and leaders. Pure; `cluster` asks the brokers and updates it.

Rules:
- A partition's leader epoch is never replaced by an older one of the same topic id: a broker that lags behind must not
  send the client back to a deposed leader (KIP-320).
- When a position or a commit has a newer leader epoch than the metadata, the partition has no known leader until an
  answer has that epoch or a newer one: the old leader does not know the epoch, and would report a truncation (KIP-320).
- A topic with another id is another topic: everything known about the old one is dropped (KIP-516).
- Metadata is updated after a failure (`request_update`), when it is older than `metadata.max.age.ms`, and for topics
  that are new. A topic not used for `metadata.max.idle.ms` is forgotten (KIP-526).
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.kernel.error import ErrorCode
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import NO_UUID, TopicPartition, Uuid
from ottla.wire.api.metadata import MetadataResponse, MetadataResponseTopic
from ottla.wire.batch import NO_LEADER_EPOCH

NO_LEADER = -1
_REFUSED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)


@frozen
class ClusterNode:
    """A broker's address for clients."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (node {self.id})"


@frozen
class PartitionState:
    """A partition in the metadata. `leader` is NO_LEADER (-1) while there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@frozen
class TopicState:
    """A topic in the metadata; `partitions` are in order of their numbers, without gaps."""

    name: str
    id: Uuid
    internal: bool
    partitions: tuple[PartitionState, ...]


class Metadata:
    """The client's view of the cluster. `Cluster` creates it, and only `Cluster` changes it."""

    def __init__(self, *, max_age_ms: int, max_idle_ms: int, now_ms: int) -> None:
        self.nodes: dict[int, ClusterNode] = {}
        self.topics: dict[str, TopicState] = {}
        self.topic_names: dict[bytes, str] = {}
        self.cluster_id: str | None = None
        self.controller_id = NO_LEADER
        #: Errors of the topics that the last answer could not describe.
        self.errors: dict[str, ErrorCode] = {}
        #: Errors that no retry cures, of topics in the last answers; for the program, which has not been told yet.
        self.untold: dict[str, ErrorCode] = {}
        #: Number of answers applied.
        self.version = 0
        #: Number of changes of leaders and leader epochs.
        self.moves = 0
        #: Ask for all topics of the cluster, as a subscription by pattern needs.
        self.all_topics = False
        #: Whether an answer about all topics has been applied since `all_topics` was set.
        self.has_all_topics = False
        self._max_age_ms = max_age_ms
        self._max_idle_ms = max_idle_ms
        self._wanted: dict[str, int] = {}
        self._next_update_ms = now_ms

    def want(self, topics: Iterable[str], now_ms: int) -> bool:
        """Note topics in use. True if one is not known yet; the next update then asks for it."""
        unknown = False
        for topic in topics:
            self._wanted[topic] = now_ms
            unknown = unknown or topic not in self.topics
        return unknown

    def want_all(self, wanted: bool, now_ms: int) -> None:
        """Set whether all topics of the cluster are in use; the next update then asks for them."""
        if wanted and not self.all_topics:
            self.request_update(now_ms)
        self.all_topics = wanted
        self.has_all_topics = self.has_all_topics and wanted

    def request_update(self, now_ms: int) -> None:
        """Request an update after a failure that fresh metadata may cure."""
        self._next_update_ms = min(self._next_update_ms, now_ms)

    def update_due_ms(self) -> int:
        """When the brokers should be asked again (monotonic ms)."""
        return self._next_update_ms

    def topics_to_ask(self, now_ms: int) -> list[str] | None:
        """The topics in use; None for all topics of the cluster. Topics idle for too long are forgotten."""
        for topic, used_ms in list(self._wanted.items()):
            if now_ms - used_ms > self._max_idle_ms:
                del self._wanted[topic]
                self._drop(topic)
        return None if self.all_topics else list(self._wanted)

    def apply(
        self, response: MetadataResponse, now_ms: int, *, epochs: bool = True, complete: bool = False
    ) -> list[TopicPartition]:
        """Apply an answer; without `epochs`, its leader epochs are unreliable and ignored.

        `complete`: the answer is about all topics of the cluster, so a topic that it lacks does not exist.

        Returns the partitions whose leader or leader epoch has changed.
        """
        self.version += 1
        self._next_update_ms = now_ms + self._max_age_ms
        self.nodes = {
            broker.node_id: ClusterNode(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        moved: list[TopicPartition] = []
        for topic in response.topics:
            name = topic.name if topic.name is not None else self.topic_names.get(bytes(topic.topic_id))
            if name is None:
                continue
            self.untold.pop(name, None)
            if topic.error_code:
                self._failed(name, topic.error_code)
                continue
            self.errors.pop(name, None)
            moved += self._put(name, topic, epochs=epochs)
        if complete:
            self.has_all_topics = self.all_topics
            for name in set(self.topics) - {topic.name for topic in response.topics}:
                self._drop(name)
        self.moves += bool(moved)
        return moved

    def has(self, partition: TopicPartition) -> bool:
        """True if the topic is known with this partition."""
        state = self.topics.get(partition.topic)
        return state is not None and partition.partition < len(state.partitions)

    def leader(self, topic: str, partition: int) -> PartitionState | None:
        """The partition's state if its leader is known; None means that the caller should request an update."""
        state_of_topic = self.topics.get(topic)
        if state_of_topic is None or partition >= len(state_of_topic.partitions):
            return None
        state = state_of_topic.partitions[partition]
        return state if state.leader in self.nodes else None

    def racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """The racks of the replicas of these topics' partitions, for brokers with a configured rack."""
        rack_of_node = {node.id: node.rack for node in self.nodes.values() if node.rack}
        return {
            TopicPartition(topic, state.partition): frozenset(
                rack_of_node[replica] for replica in state.replicas if replica in rack_of_node
            )
            for topic in topics
            if rack_of_node and topic in self.topics
            for state in self.topics[topic].partitions
        }

    def leader_moved(self, topic: str, partition: int, leader: int, epoch: int) -> bool:
        """Apply a leader hint from NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH (KIP-951). True if it is new."""
        topic_state = self.topics.get(topic)
        if topic_state is None or partition >= len(topic_state.partitions) or leader not in self.nodes:
            return False
        old = topic_state.partitions[partition]
        if epoch <= old.leader_epoch:
            return False
        self._lead(topic_state, old, leader, epoch)
        return True

    def epoch_seen(self, topic: str, partition: int, epoch: int, now_ms: int) -> bool:
        """Note the leader epoch of a position or commit. True if it is newer than ours: the leader is then unknown."""
        topic_state = self.topics.get(topic)
        if topic_state is None or partition >= len(topic_state.partitions):
            return False
        old = topic_state.partitions[partition]
        if not 0 <= old.leader_epoch < epoch:
            return False
        self._lead(topic_state, old, NO_LEADER, epoch)
        self.request_update(now_ms)
        return True

    def _lead(self, topic: TopicState, old: PartitionState, leader: int, epoch: int) -> None:
        new = PartitionState(old.partition, leader, epoch, old.replicas, old.isr, old.offline)
        states = (*topic.partitions[: old.partition], new, *topic.partitions[old.partition + 1 :])
        self.topics[topic.name] = TopicState(topic.name, topic.id, topic.internal, states)
        self.moves += 1

    def add_nodes(self, nodes: Iterable[ClusterNode]) -> None:
        """Add the brokers that an answer names with its leader hints (KIP-951)."""
        for node in nodes:
            self.nodes[node.id] = node

    def _put(self, name: str, topic: MetadataResponseTopic, *, epochs: bool) -> list[TopicPartition]:
        old = self.topics.get(name)
        topic_id = Uuid(bytes(topic.topic_id))
        same = old is not None and (old.id == topic_id or NO_UUID in (old.id, topic_id))
        before = {state.partition: state for state in old.partitions} if old is not None and same else {}
        moved: list[TopicPartition] = []
        states: list[PartitionState] = []
        for partition in sorted(topic.partitions, key=lambda data: data.partition_index):
            state = PartitionState(
                partition.partition_index,
                partition.leader_id,
                partition.leader_epoch if epochs else NO_LEADER_EPOCH,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
                tuple(partition.offline_replicas),
            )
            known = before.get(state.partition)
            if known is not None and 0 <= state.leader_epoch < known.leader_epoch:
                state = known
            elif known is None or (known.leader, known.leader_epoch) != (state.leader, state.leader_epoch):
                moved.append(TopicPartition(name, state.partition))
            states.append(state)
        if old is not None and not same:
            self.topic_names.pop(old.id, None)
        self.topics[name] = TopicState(name, topic_id, bool(topic.is_internal), tuple(states))
        if topic_id != NO_UUID:
            self.topic_names[topic_id] = name
        return moved

    def _failed(self, name: str, code: int) -> None:
        self.errors[name] = ErrorCode.of(code)
        # A topic without a leader for a moment is kept; a topic that no longer exists is not.
        if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            self._drop(name)
        if code in _REFUSED:
            self.untold[name] = self.errors[name]

    def _drop(self, name: str) -> None:
        gone = self.topics.pop(name, None)
        if gone is not None:
            self.topic_names.pop(gone.id, None)
