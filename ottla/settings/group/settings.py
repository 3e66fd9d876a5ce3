"""A group's settings (KIP-848, KIP-932, KIP-1071): the group's own values, with the server's as the fallback.

Rules:
- A value is within the server's limits (such as `group.consumer.min.session.timeout.ms`): `check_together` rejects
  values outside, and `resolve` clamps values that were set under other limits.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.settings.group.declaration import GroupOverrideDeclaration
from ottla.settings.override import OverrideSettings
from ottla.settings.schema import SettingSource, Synonym
from ottla.settings.server.settings import ServerSettings

#: In the order of Kafka's checks.
BOUNDED = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.assignment.interval.ms",
)
_STANDBYS, _STANDBYS_MAX = "streams.num.standby.replicas", "group.streams.max.standby.replicas"


class GroupSettings(GroupOverrideDeclaration, OverrideSettings):
    """A group's settings in effect on one node; created by `resolve`."""

    kind = "group setting"

    source = SettingSource.GROUP

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], server: ServerSettings) -> GroupSettings:
        """Return the settings in effect, each clamped to the server's limits."""
        known = cls.declared()
        settings = cls(overrides, server)
        for name in BOUNDED:
            low, high = _bounds(name, server)
            attribute = known[name].attribute
            settings.__dict__[attribute] = max(low, min(high, getattr(settings, attribute)))
        limit = server.group_streams_max_standby_replicas
        settings.__dict__["streams_num_standby_replicas"] = min(settings.streams_num_standby_replicas, limit)
        return settings

    @classmethod
    def check_together(cls, overrides: Mapping[str, str], server: ServerSettings) -> None:
        """Check each value, the server's limits, and their constraints. Raise KafkaError(INVALID_CONFIG)."""
        for name, value in overrides.items():
            cls.check(name, value)
        settings = cls(overrides, server)
        for name in BOUNDED:
            low, high = _bounds(name, server)
            value = getattr(settings, cls.declared()[name].attribute)
            kind, _, rest = name.partition(".")
            if value < low:
                raise _refused(f"{name} must be greater than or equal to group.{kind}.min.{rest}", value, low, high)
            if value > high:
                raise _refused(f"{name} must be less than or equal to group.{kind}.max.{rest}", value, low, high)
        standbys, most = settings.streams_num_standby_replicas, server.group_streams_max_standby_replicas
        if standbys > most:
            raise _refused(f"{_STANDBYS} must be less than or equal to {_STANDBYS_MAX}", standbys, 0, most)
        for kind in ("consumer", "share", "streams"):
            session = getattr(settings, f"{kind}_session_timeout_ms")
            heartbeat = getattr(settings, f"{kind}_heartbeat_interval_ms")
            if session <= heartbeat:
                why = f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms"
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{why}; they are {session} and {heartbeat}")

    def text(self, name: str) -> str | None:
        """Return the value in effect as Kafka writes it."""
        setting = self.declared()[name]
        return setting.write(getattr(self, setting.attribute))

    def synonyms(self, name: str) -> list[Synonym]:
        """Return the group's own value, then the server's."""
        broker = self.declared()[name].broker
        if broker is None:
            return super().synonyms(name)
        own = [Synonym(name, layer.texts[name], layer.source) for layer in self._layers if name in layer.texts]
        return own + self._server.synonyms(broker)


def _refused(why: str, value: int, low: int, high: int) -> KafkaError:
    """Return the error: Kafka's message, followed by the value and the limits."""
    return KafkaError(ErrorCode.INVALID_CONFIG, f"{why}; it is {value}, and this cluster takes {low} to {high}")


def _bounds(name: str, server: ServerSettings) -> tuple[int, int]:
    kind, _, rest = name.partition(".")
    declared = ServerSettings.declared()
    low, high = (declared[f"group.{kind}.{bound}.{rest}"].attribute for bound in ("min", "max"))
    return getattr(server, low), getattr(server, high)
