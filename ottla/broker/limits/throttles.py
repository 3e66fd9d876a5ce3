"""The replication throttles of a node as the metadata sets them (KIP-73, KIP-113)."""

from __future__ import annotations

from ottla.metadata.image import BROKER, TOPIC, Image
from ottla.replica.throttle import Throttle, configured_rate, throttled_partitions
from ottla.settings.quota import ReplicationRates
from ottla.settings.server.settings import ServerSettings
from ottla.settings.topic.declaration import TopicDeclaration


class Throttles:
    """Throttles of what leaders send, followers fetch, and moves copy between directories. The node creates it."""

    def __init__(self, node_id: int, settings: ServerSettings) -> None:
        self._node_id = node_id
        windows, window_ms = (
            settings.replication_quota_window_num,
            settings.replication_quota_window_size_seconds * 1000,
        )
        self.leader = Throttle(windows, window_ms)
        self.follower = Throttle(windows, window_ms)
        self.directories = Throttle(
            settings.alter_log_dirs_replication_quota_window_num,
            settings.alter_log_dirs_replication_quota_window_size_seconds * 1000,
        )

    def follow(self, old: Image, new: Image) -> None:
        """Apply a change of the throttle configs."""
        if new.changed_configs(old, BROKER):
            own, every = new.config(BROKER, str(self._node_id)), new.config(BROKER, "")
            for throttle, rate in (
                (self.leader, ReplicationRates.leader_replication_throttled_rate),
                (self.follower, ReplicationRates.follower_replication_throttled_rate),
                (self.directories, ReplicationRates.replica_alter_log_dirs_io_max_bytes_per_second),
            ):
                throttle.bound = configured_rate(rate.name, own, every)
        for topic in new.changed_configs(old, TOPIC):
            config = new.config(TOPIC, topic)
            for throttle, replicas in (
                (self.leader, TopicDeclaration.leader_replication_throttled_replicas),
                (self.follower, TopicDeclaration.follower_replication_throttled_replicas),
            ):
                throttle.mark(topic, throttled_partitions(config.get(replicas.name, ""), self._node_id))
