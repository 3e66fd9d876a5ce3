"""The settings of a client metrics subscription (KIP-714): which clients push which metrics, and how often.

`check_together` has Kafka's messages, which differ from those of other settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.lazy import LazyModule
from ottla.kernel.validators import Between, ListOf, whole_number
from ottla.settings.schema import Setting, Settings, integer, listing, refusal

if TYPE_CHECKING:
    from ottla.kernel.re2 import pattern as expression
else:
    # Only subscriptions use expressions, and the import costs 7 ms at startup.
    expression = LazyModule("ottla.kernel.re2.pattern")

#: The attributes of a client that a subscription may match (KIP-714).
_MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class ClientMetricsSettings(Settings):
    """The settings of one subscription; a setting without a value has its default."""

    kind = "client metrics setting"

    interval_ms = integer(
        "interval.ms", 300_000, "The interval between two pushes of a client, in ms.", Between(100, 3_600_000)
    )
    match = listing("match", (), "The matching clients, as attribute=pattern pairs; empty matches all.", ListOf())
    metrics = listing("metrics", (), "Prefixes of the names of the requested metrics; * means all.", ListOf())

    @classmethod
    def check_together(cls, name: str, after: Mapping[str, str]) -> None:
        """Check all settings of the subscription of this name. Raise KafkaError."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        declared = cls.declared()
        for key in after:
            if key not in declared:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
        lists = {key: _checked_list(declared[key], after.get(key, "")) for key in ("metrics", "match")}
        interval = after.get("interval.ms")
        if interval is not None:
            interval_ms = whole_number(interval, 32)
            if interval_ms is None:
                why = f"Invalid value {interval} for configuration interval.ms: Not a number of type INT"
                raise KafkaError(ErrorCode.INVALID_CONFIG, why)
            if not declared["interval.ms"].accepts(interval_ms):
                why = f"Invalid value {interval} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
                raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        for pattern in lists["match"]:
            _check_match(pattern)


def matched(pattern: str) -> tuple[str, str] | None:
    """Return (attribute, expression) of an entry of `match`; None if it is no such pair."""
    # As in Java, empty parts at the end do not count.
    parts = pattern.rstrip("=").split("=")
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else None


def _checked_list(setting: Setting[Any], text: str) -> Sequence[str]:
    try:
        return tuple(setting.parse(text))
    except OttlaError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, refusal(setting, text)) from error


def _check_match(pattern: str) -> None:
    pair = matched(pattern)
    if pair is not None and pair[0] in _MATCHED:
        try:
            expression.Expression(pair[1])
        except expression.InvalidExpression:
            pass
        else:
            return
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
