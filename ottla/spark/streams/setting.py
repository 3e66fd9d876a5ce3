"""Kafka Streams' settings in a program's `config`: those of internal topics, and those without effect.

Rules (StreamsConfig 4.3.1, InternalTopicConfig):
- `topic.NAME` is a setting of every internal topic; a store's own changelog settings win over it.
- `replication.factor` is that of every internal topic; -1 is the brokers' default.
- A setting that Kafka Streams has but that has no effect here is named in a warning at the start, and so is a name
  that is one of its settings but for a few letters.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import Any

from ottla.flow.setting import CACHE, EXPLICIT_NAMES, GUARANTEE, OPTIMIZATION, PURGE, REPLICATION, without_cache

log = logging.getLogger(__name__)
_TOPIC = "topic."
#: The prefixes of Kafka Streams' client settings; here they go into `client=`.
_CLIENTS = ("consumer.", "main.consumer.", "restore.consumer.", "global.consumer.", "producer.", "admin.")
#: The other settings of StreamsConfig that have no effect.
_NAMES = """
    acceptable.recovery.lag allow.os.group.write.access application.id application.server bootstrap.servers
    buffered.records.per.partition built.in.metrics.version cache.max.bytes.buffering client.id commit.interval.ms
    config.providers connections.max.idle.ms default.client.supplier default.deserialization.exception.handler
    default.dsl.store default.key.serde default.list.key.serde.inner default.list.key.serde.type
    default.list.value.serde.inner default.list.value.serde.type default.production.exception.handler
    default.timestamp.extractor default.value.serde deserialization.exception.handler dsl.store.format
    dsl.store.suppliers.class enable.metrics.push errors.dead.letter.queue.topic.name group.protocol
    log.summary.interval.ms max.task.idle.ms max.warmup.replicas metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms num.standby.replicas num.stream.threads poll.ms
    probing.rebalance.interval.ms processing.exception.handler processing.exception.handler.global.enabled
    processor.wrapper.class production.exception.handler rack.aware.assignment.non_overlap_cost
    rack.aware.assignment.strategy rack.aware.assignment.tags rack.aware.assignment.traffic_cost receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.ms rocksdb.config.setter
    security.protocol send.buffer.bytes state.cleanup.delay.ms state.cleanup.dir.max.age.ms state.dir
    statestore.cache.max.bytes task.assignor.class task.timeout.ms upgrade.from window.size.ms
    windowed.inner.class.serde windowstore.changelog.additional.retention.ms
"""
_UNSERVED = frozenset(_NAMES.split())
_SERVED = (GUARANTEE, REPLICATION, OPTIMIZATION, EXPLICIT_NAMES, PURGE)


def topic_configs(configs: Mapping[str, Any]) -> dict[str, Any]:
    """The topic settings of every internal topic."""
    return {name.removeprefix(_TOPIC): value for name, value in configs.items() if name.startswith(_TOPIC)}


def warn_unserved(configs: Mapping[str, Any]) -> None:
    """Warn in one line about the settings that have no effect, and about each name that looks like another's. Other
    names are the program's own (`Context.app_configs`).
    """
    for name in sorted(configs.keys() - _UNSERVED - set(_SERVED)):
        if name.startswith((*_CLIENTS, _TOPIC)):
            continue
        if close := difflib.get_close_matches(name, (*_SERVED, *_UNSERVED), 1, 0.85):
            log.warning("config: %s is not a setting of Kafka Streams; did you mean %s?", name, close[0])
    served = {CACHE} if without_cache(configs) else set()
    if unserved := sorted(name for name in configs.keys() - served if name in _UNSERVED or name.startswith(_CLIENTS)):
        log.warning(
            "config: %s: no effect on Spark (pass client settings in client=, and serdes and handlers to build())",
            ", ".join(unserved),
        )
