"""A topic's settings: what the topic says, and behind it what the server says.

    settings = TopicSettings.resolve({"retention.ms": "1000"}, server)
    settings.retention_ms, settings.segment_bytes, settings.cleanup_policy

Rules:
- A setting that the topic does not have is the server's, by the name in its `broker`.
- `check` and `check_together` are for what people ask for; `resolve` reads what the cluster has agreed on.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.settings.override import OverrideSettings
from ottla.settings.schema import SettingSource, Synonym
from ottla.settings.server.settings import ServerSettings
from ottla.settings.topic.declaration import TopicDeclaration


class TopicSettings(TopicDeclaration, OverrideSettings):
    """A topic's settings as they hold on one node; made by `resolve`."""

    kind = "topic setting"

    source = SettingSource.TOPIC

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], server: ServerSettings) -> TopicSettings:
        """The settings in force. Unknown names are passed over: a later release may have set them."""
        return cls(overrides, server)

    @classmethod
    def check_together(cls, overrides: Mapping[str, str], server: ServerSettings) -> None:
        """Check every value, and what must fit together. Raises KafkaError(INVALID_CONFIG)."""
        for name, value in overrides.items():
            cls.check(name, value)
        settings = cls.resolve(overrides, server)
        if settings.min_compaction_lag_ms > settings.max_compaction_lag_ms:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"min.compaction.lag.ms={settings.min_compaction_lag_ms} is more than "
                f"max.compaction.lag.ms={settings.max_compaction_lag_ms}",
            )
        if settings.remote_storage_enable and not server.remote_log_storage_system_enable:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "remote.storage.enable=true: this cluster has no remote storage (remote.log.storage.system.enable)",
            )

    def text(self, name: str) -> str | None:
        """The value in force as Kafka writes it."""
        setting = self.declared()[name]
        if name in self._given or setting.broker is None:
            return super().text(name)
        return setting.write(getattr(self, setting.attribute))

    def synonyms(self, name: str) -> list[Synonym]:
        """The topic's own value, then what the server has under its names for it."""
        own = [Synonym(name, layer.texts[name], layer.source) for layer in self._layers if name in layer.texts]
        broker = self.declared()[name].broker
        return own if broker is None else own + self._server.synonyms(broker)
