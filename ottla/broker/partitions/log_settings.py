"""The log settings of each topic on this node."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.kernel.ids import TopicPartition
from ottla.log.setting import LogSettings
from ottla.metadata.image import TOPIC
from ottla.settings.topic.settings import TopicSettings

if TYPE_CHECKING:
    from ottla.broker.runtime import Runtime

_log = logging.getLogger("ottla.broker")
#: The entry of all topics that have no settings of their own.
_DEFAULT = ""


class LogSettingsByTopic:
    """Resolves each topic's settings once, until `forget` or `clear`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._by_topic: dict[str, LogSettings] = {}

    def of(self, tp: TopicPartition) -> LogSettings:
        """The settings of a partition's log: its topic's own, then the node's."""
        image, node_settings = self._runtime.image, self._runtime.settings
        own = image.config(TOPIC, tp.topic)
        name = tp.topic if own else _DEFAULT
        settings = self._by_topic.get(name)
        if settings is None:
            resolved = TopicSettings.resolve(own, node_settings)
            for error in resolved.invalid:
                _log.error("a config of the topic %s has no effect: %s", tp.topic, error)
            settings = LogSettings.of(resolved, node_settings.producer_id_expiration_ms)
            self._by_topic[name] = settings
        return settings

    def forget(self, topic: str) -> None:
        """Resolve this topic's settings again: they changed, or the topic is deleted."""
        self._by_topic.pop(topic, None)

    def clear(self) -> None:
        """Resolve every topic's settings again: the node's defaults changed."""
        self._by_topic.clear()
