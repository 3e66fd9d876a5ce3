"""Deletion of processed records from a program's repartition topics, which have no retention (as in Kafka Streams).

Rules:
- Only records below the program's committed offsets are deleted, because a restart reads the others again.
- A request is sent every `repartition.purge.interval.ms` (30,000), one at a time, on a separate thread, so that the
  worker never waits.
- A failed deletion is logged once and retried with the next request.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from ottla.client.admin.client import Admin
from ottla.flow.setting import purge_interval_ms
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.spark.streams.layout import Program

log = logging.getLogger(__name__)


class Purge:
    """Deletes processed records of one worker's repartition topics."""

    def __init__(self, program: Program, admin: Admin, now: int) -> None:
        topology = program.topology
        self._topics = {topology.topic(name, program.application_id) for name in topology.internal_topics}
        self._interval_ms = purge_interval_ms(program.settings.configs)
        self._due_ms = now + self._interval_ms
        self._admin = admin
        #: The offsets below which everything has been deleted.
        self._purged: dict[TopicPartition, int] = {}
        self._failed: set[TopicPartition] = set()
        self._closed = False
        #: The thread of the last request, which may have ended.
        self.thread: threading.Thread | None = None

    def purge_if_due(self, committed: Mapping[TopicPartition, int], now: int) -> None:
        """Delete the records below the `committed` offsets if a request is due."""
        if now < self._due_ms or (self.thread is not None and self.thread.is_alive()):
            return
        self._due_ms = now + self._interval_ms
        wanted = {
            partition: offset
            for partition, offset in committed.items()
            if partition.topic in self._topics and offset > self._purged.get(partition, 0)
        }
        if wanted:
            self.thread = threading.Thread(target=self._delete, args=(wanted,), daemon=True, name="ottla-streams-purge")
            self.thread.start()

    def close(self) -> None:
        """Mark the worker as ending: its admin client closes, so a pending request may fail without a warning."""
        self._closed = True

    def _delete(self, wanted: dict[TopicPartition, int]) -> None:
        try:
            answer = self._admin.delete_records(wanted)
        except (KafkaError, OttlaError) as error:
            return self._warn(dict.fromkeys(wanted, error))
        self._purged |= {partition: wanted[partition] for partition in answer.succeeded}
        self._failed -= answer.succeeded.keys()
        return self._warn(answer.errors)

    def _warn(self, errors: Mapping[TopicPartition, Exception]) -> None:
        for partition in () if self._closed else errors.keys() - self._failed:
            log.warning("cannot delete processed records of %s-%d yet: %s; trying again", *partition, errors[partition])
        self._failed |= errors.keys()
