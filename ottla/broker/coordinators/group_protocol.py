"""The kinds of groups that the cluster's features and this node's settings enable.

Rules:
- Classic groups are always served. The other kinds need a feature level; those of KIP-848 and KIP-1071 must also be
  listed in `group.coordinator.rebalance.protocols`.
- As in Apache Kafka, a request of a disabled kind fails with UNSUPPORTED_VERSION and no message: the client falls back
  to the classic protocol, or reports that the cluster does not support the other one.

KIPs: 848 consumer groups, 932 share groups, 1071 streams groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.runtime import Runtime

CONSUMER, SHARE, STREAMS = "consumer", "share", "streams"

#: Kind -> the feature whose level 1 enables it.
_FEATURES = {CONSUMER: "group.version", SHARE: "share.version", STREAMS: "streams.version"}
#: The kinds that the setting can disable.
_BY_SETTING = frozenset({CONSUMER, STREAMS})


def is_enabled(runtime: Runtime, kind: str) -> bool:
    """Whether this node serves groups of the kind."""
    allowed = kind not in _BY_SETTING or kind in runtime.settings.group_coordinator_rebalance_protocols
    return allowed and runtime.image.features.get(_FEATURES[kind], 0) > 0


def check_enabled(runtime: Runtime, kind: str) -> None:
    """Raise UNSUPPORTED_VERSION unless this node serves groups of the kind."""
    if not is_enabled(runtime, kind):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
