"""What a query has read, committed for a consumer group, so that every Kafka tool shows its lag.

Spark keeps a query's offsets in its checkpoint and commits nothing to Kafka: `kafka-consumer-groups` and every lag
exporter are blind to it. `commit_for` makes a listener that commits, after each batch, the offsets at which the next
one starts.

Rules:
- The group is for watching only. Spark goes on to read from its checkpoint, whatever is committed.
- A group that has members of its own rejects the commits (UNKNOWN_MEMBER_ID): take a name without consumers.
- A commit that fails does not disturb the query: it is logged, and the next batch commits later offsets anyway.

One query may read several sources; all their topics are committed for the one group.
"""

import json
import logging
import threading
from typing import TYPE_CHECKING

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
    """Commits one query's progress. `commit_for` makes it; `close` ends it, after the query.

    Spark calls it on a thread of its own, one event after the other.
    """

    def __init__(self, spark: "SparkSession", query: "StreamingQuery", group: str, bootstrap_servers: str) -> None:
        self.query, self.group = query, group
        #: what was committed last
        self.committed: dict[TopicPartition, int] = {}
        self._spark = spark
        self._batch = -1
        self._lock = threading.Lock()
        self._admin = Admin(bootstrap_servers)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        if str(event.progress.id) == str(self.query.id):
            self.commit(event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Its last batch was committed by its own progress."""

    def commit(self, progress: "StreamingQueryProgress") -> None:
        """Commit where the next batch starts, if that is news."""
        with self._lock:
            if progress.batchId < self._batch:
                return
            # A query that waits for data reports the batch that is to come, and that batch later reports itself.
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
                log.warning("what %s has read is not committed for %s: %s", self.query.name, self.group, failure)
            else:
                self.committed = offsets

    def close(self) -> None:
        """Listen no more."""
        self._spark.streams.removeListener(self)
        self._admin.close()


def commit_for(spark: "SparkSession", query: "StreamingQuery", group: str, bootstrap_servers: str) -> GroupCommit:
    """Commit what `query` reads, from now on, for the consumer group `group` of the cluster it reads from."""
    listener = GroupCommit(spark, query, group, bootstrap_servers)
    spark.streams.addListener(listener)
    last = query.lastProgress
    if last is not None:
        listener.commit(last)
    return listener


def positions(end_offset: str | None) -> dict[TopicPartition, int]:
    """The offsets of a source's progress, `{"flights": {"0": 42}}`; none while it has read nothing."""
    topics = json.loads(end_offset) if end_offset and end_offset != "None" else None
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in (topics or {}).items()
        for partition, offset in partitions.items()
    }
