"""Commits of a query's progress for a consumer group, so that every Kafka tool shows its lag.

Spark keeps a query's offsets in its checkpoint and commits nothing to Kafka, so `kafka-consumer-groups` and lag
exporters do not see it. `commit_for` adds a listener that commits, after each batch, the offsets at which the next
batch starts.

Rules:
- The group is for monitoring only. Spark reads from its checkpoint, whatever is committed.
- A group with members rejects the commits (UNKNOWN_MEMBER_ID): use a group without consumers.
- A failed commit does not disturb the query: it is logged, and the next batch commits later offsets.

One query may read several sources; all their topics are committed for the one group.
"""

import json
import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ottla.client import Admin
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)


class GroupCommit(StreamingQueryListener):
    """Commits the progress of one query. Made by `commit_for`; call `close` after the query has ended.

    Spark calls it on a separate thread, one event at a time.
    """

    def __init__(
        self, spark: "SparkSession", query: "StreamingQuery", group: str, client: str | Mapping[str, Any]
    ) -> None:
        self.query, self.group = query, group
        #: The offsets of the last commit.
        self.committed: dict[TopicPartition, int] = {}
        self._spark = spark
        self._batch = -1
        self._lock = threading.Lock()
        self._admin = Admin(client)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing: nothing has been read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Commit the progress if it is that of the query."""
        if str(event.progress.id) == str(self.query.id):
            self.commit(event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing: the progress of the last batch has been committed."""

    def commit(self, progress: "StreamingQueryProgress") -> None:
        """Commit the offsets at which the next batch starts, if they have changed."""
        with self._lock:
            if progress.batchId < self._batch:
                return
            # A query without data reports the coming batch, which reports itself again once it has run.
            again, self._batch = progress.batchId == self._batch, progress.batchId
            offsets = dict(self.committed)
            for source in progress.sources:
                if source.description.startswith("KafkaV2"):
                    for where, offset in positions(source.endOffset).items():
                        offsets[where] = max(offset, offsets.get(where, 0)) if again else offset
            if offsets == self.committed:
                return
            try:
                self._admin.alter_group_offsets(self.group, offsets).check()
            except (KafkaError, OttlaError) as failure:
                log.warning(
                    "cannot commit the progress of query %s for group %s: %s; the next batch commits again",
                    *(self.query.name, self.group, failure),
                )
            else:
                self.committed = offsets

    def close(self) -> None:
        """Remove the listener and close its client."""
        self._spark.streams.removeListener(self)
        self._admin.close()


def commit_for(
    spark: "SparkSession", query: "StreamingQuery", group: str, client: str | Mapping[str, Any]
) -> GroupCommit:
    """Commit the progress of `query` from now on, for the consumer group `group` of the cluster that it reads from.

    `client`: bootstrap servers, or client settings by Kafka's names.
    """
    listener = GroupCommit(spark, query, group, client)
    spark.streams.addListener(listener)
    last = query.lastProgress
    if last is not None:
        listener.commit(last)
    return listener


def positions(end_offset: str | None) -> dict[TopicPartition, int]:
    """The offsets in a source's progress, `{"flights": {"0": 42}}`; none if the source has read nothing."""
    topics = json.loads(end_offset) if end_offset and end_offset != "None" else None
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in (topics or {}).items()
        for partition, offset in partitions.items()
    }
