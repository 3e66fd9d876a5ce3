"""Kafka Streams' settings in a program's `config` that have values to check: when it is built, and before it starts.

Each function returns the value or its default. TopologyError if the value is invalid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.flow.error import TopologyError
from ottla.flow.where import Where

GUARANTEE, GUARANTEES = "processing.guarantee", ("exactly_once_v2", "at_least_once")
REPLICATION = "replication.factor"
PURGE, PURGE_MS = "repartition.purge.interval.ms", 30_000
OPTIMIZATION, EXPLICIT_NAMES = "topology.optimization", "ensure.explicit.internal.resource.naming"
CACHE = "statestore.cache.max.bytes"
_REPLICAS_MAX = 32_767
#: What `topology.optimization=all` enables. Kafka Streams' third one, merge.repartition.topics, is not implemented.
_OPTIMIZATIONS = frozenset({"reuse.ktable.source.topics", "single.store.self.join"})


def check(configs: Mapping[str, Any], where: Where) -> None:
    """Check all values."""
    for name in configs:
        if not isinstance(name, str):
            raise TopologyError(f"invalid name of a setting in config: {name!r} (expected str)", where)
    for read in (guarantee, replication_factor, purge_interval_ms, optimizations, explicit_names):
        read(configs, where)


def guarantee(configs: Mapping[str, Any], where: Where | None = None) -> str:
    """The value of `processing.guarantee`."""
    value = configs.get(GUARANTEE, GUARANTEES[0])
    if value not in GUARANTEES:
        raise _invalid(GUARANTEE, value, " or ".join(GUARANTEES), where)
    return str(value)


def replication_factor(configs: Mapping[str, Any], where: Where | None = None) -> int:
    """The value of `replication.factor`."""
    given = configs.get(REPLICATION, -1)
    replicas = _integer(given)
    if replicas is None or not (replicas == -1 or 1 <= replicas <= _REPLICAS_MAX):
        raise _invalid(REPLICATION, given, "1 or more, or -1 for the brokers' default", where)
    return replicas


def purge_interval_ms(configs: Mapping[str, Any], where: Where | None = None) -> int:
    """The value of `repartition.purge.interval.ms`."""
    given = configs.get(PURGE, PURGE_MS)
    interval_ms = _integer(given)
    if interval_ms is None or interval_ms < 0:
        raise _invalid(PURGE, given, "milliseconds, 0 or more", where)
    return interval_ms


def optimizations(configs: Mapping[str, Any], where: Where | None = None) -> frozenset[str]:
    """The optimizations that `topology.optimization` enables."""
    given = configs.get(OPTIMIZATION, "none")
    if given in ("none", ""):
        return frozenset()
    if given == "all":
        return _OPTIMIZATIONS
    names = frozenset(name.strip() for name in str(given).split(","))
    if unknown := names - _OPTIMIZATIONS:
        known = f"none, all or some of {', '.join(sorted(_OPTIMIZATIONS))}"
        raise TopologyError(f"invalid {OPTIMIZATION}: {', '.join(sorted(unknown))} (expected {known})", where)
    return names


def explicit_names(configs: Mapping[str, Any], where: Where | None = None) -> bool:
    """The value of `ensure.explicit.internal.resource.naming`."""
    given = configs.get(EXPLICIT_NAMES, False)
    if str(given).lower() not in ("true", "false"):
        raise _invalid(EXPLICIT_NAMES, given, "true or false", where)
    return str(given).lower() == "true"


def without_cache(configs: Mapping[str, Any]) -> bool:
    """Whether `statestore.cache.max.bytes` is 0: old values are then those of Kafka Streams without its cache.

    Otherwise the old value of a change is always what was emitted before, so that an aggregate of a table subtracts
    exactly what it added: null for an aggregate's new key, and behind suppress the value emitted last.
    """
    return _integer(configs.get(CACHE)) == 0


def _integer(given: Any) -> int | None:
    try:
        return None if isinstance(given, (float, bool)) else int(given)
    except (TypeError, ValueError):
        return None


def _invalid(name: str, given: Any, expected: str, where: Where | None) -> TopologyError:
    return TopologyError(f"invalid value for {name}: {given} (expected {expected})", where)
