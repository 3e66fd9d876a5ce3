"""A topic's settings: the topic's own values, with the server's as the fallback.

    settings = TopicSettings.resolve({"retention.ms": "1000"}, server)
    settings.retention_ms, settings.segment_bytes, settings.cleanup_policy

Rules:
- A setting without its own value has the value of the server setting named in `broker`.
- `check` and `check_together` are for values from users; `resolve` reads the committed values.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.settings.override import OverrideSettings
from ottla.settings.schema import SettingSource, Synonym
from ottla.settings.server.settings import ServerSettings
from ottla.settings.topic.declaration import TopicDeclaration


class TopicSettings(TopicDeclaration, OverrideSettings):
    """A topic's settings in effect on one node; created by `resolve`."""

    kind = "topic setting"

    source = SettingSource.TOPIC

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], server: ServerSettings) -> TopicSettings:
        """Return the settings in effect. Unknown names and invalid values are skipped, as `invalid` says."""
        return cls(overrides, server)

    @classmethod
    def check_together(cls, overrides: Mapping[str, str], server: ServerSettings) -> None:
        """Check each value and the constraints between values. Raise KafkaError(INVALID_CONFIG)."""
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
        """Return the value in effect as Kafka writes it."""
        setting = self.declared()[name]
        if name in self._given or setting.broker is None:
            return super().text(name)
        return setting.write(getattr(self, setting.attribute))

    def synonyms(self, name: str) -> list[Synonym]:
        """Return the topic's own value, then the server's."""
        own = [Synonym(name, layer.texts[name], layer.source) for layer in self._layers if name in layer.texts]
        broker = self.declared()[name].broker
        return own if broker is None else own + self._server.synonyms(broker)
