"""A share consumer's group membership: heartbeats only; several members may have the same partition (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.connection.clock import random_uuid
from ottla.client.connection.cluster import Cluster
from ottla.client.membership.consumer import ConsumerGroupMember
from ottla.client.membership.group import Owner
from ottla.client.membership.membership import ConsumerMembership
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.ids import Uuid, uuid_text
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


class ShareMembership(ConsumerMembership):
    """A consumer in a share group: it reports its topics and gets its partitions, which it does not own alone."""

    def heartbeat_request(  # type: ignore[override]  # another request with the same meaning
        self, topics: Iterable[str], pattern: str | None, owned: dict[Uuid, tuple[int, ...]]
    ) -> ShareGroupHeartbeatRequest:
        """Everything when joining, otherwise only what has changed since the last heartbeat."""
        settings = self._settings
        request = ShareGroupHeartbeatRequest(
            group_id=settings.group_id or "", member_id=self.member_id, member_epoch=self.epoch
        )
        subscription = (tuple(sorted(topics)), None)
        if not self.joined:
            request.rack_id = settings.client_rack or None
        if not self.joined or subscription != self._reported_subscription:
            request.subscribed_topic_names = list(subscription[0])
            self._reported_subscription = subscription
        return request

    def leave_request(self) -> ShareGroupHeartbeatRequest:  # type: ignore[override]  # the same
        """The heartbeat that leaves the group."""
        return ShareGroupHeartbeatRequest(
            group_id=self._settings.group_id or "", member_id=self.member_id, member_epoch=-1
        )


class ShareGroupMember(ConsumerGroupMember):
    """A member of a share group."""

    response = ShareGroupHeartbeatResponse

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, owner: Owner) -> None:
        super().__init__(cluster, settings, owner)
        self.membership = ShareMembership(settings, uuid_text(random_uuid()))
