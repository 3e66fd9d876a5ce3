"""Settings of a resource, a topic or a group: its own values, with the server's as the fallback.

Rules:
- A setting without its own value has the value of the server setting named in `broker`.
- Unknown names and invalid values are skipped when reading stored settings (a release with other settings or limits may
  have set them), and rejected when a user sets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.settings.schema import Layer, Settings, SettingSource, nearest, refusal
from ottla.settings.server.settings import ServerSettings


class OverrideSettings(Settings):
    """A resource's settings in effect on one node."""

    #: The source of its own values.
    source: ClassVar[SettingSource]

    _server: ServerSettings
    #: The errors of the stored values that this release does not take and that therefore have no effect.
    invalid: tuple[OttlaError, ...]

    def __init__(self, overrides: Mapping[str, str], server: ServerSettings) -> None:
        known = self.declared()
        texts = {name: text for name, text in overrides.items() if name in known}
        invalid = []
        try:
            super().__init__((Layer(self.source, texts),))
        except OttlaError:
            for name in list(texts):
                try:
                    known[name].parse(texts[name])
                except OttlaError as error:
                    invalid.append(error)
                    del texts[name]
            super().__init__((Layer(self.source, texts),))
        values = self.__dict__
        values["invalid"] = tuple(invalid)
        values["_server"] = server
        for setting in known.values():
            if setting.broker is not None and setting.name not in self._given:
                values[setting.attribute] = getattr(server, server.declared()[setting.broker].attribute)

    @classmethod
    def check(cls, name: str, value: str | None) -> None:
        """Raise KafkaError(INVALID_CONFIG) if the name or the value is invalid."""
        setting = cls.declared().get(name)
        if setting is None:
            why = f"Unknown {cls.kind.partition(' ')[0]} config name: {name}{nearest(name, cls.declared())}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, why)
        try:
            setting.parse(value)
        except OttlaError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, refusal(setting, value)) from error
