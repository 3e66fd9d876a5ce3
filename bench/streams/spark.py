"""The same jobs written by hand in PySpark structured streaming, where possible.

    python -m bench.streams.spark BOOTSTRAP PROGRAM CHECKPOINT INPUT OTHER OUTPUT RECORDS

reads the topics in several batches, and prints `rate RECORDS_PER_SECOND`: the records of all batches but the first
divided by their durations. Spark's Kafka sink is at least once, less than the other systems guarantee.

A join of a stream with a changing table, and an aggregate of a table, are not possible: a static table does not change,
and nothing is subtracted when a row changes.
"""

import sys
from typing import Any

BATCHES = 6


def main() -> None:
    """Run one job, as described at the head of the module."""
    import ottla.spark

    servers, program, checkpoint, source, other, output, records = sys.argv[1:]
    session = ottla.spark.session("bench", cores=2, long_running=True)
    per_batch = str(max(1, int(records) // BATCHES))

    def read(topic: str) -> Any:
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
        tuned = {
            "maxOffsetsPerTrigger": per_batch,
            "kafka.fetch.max.wait.ms": "10",
            "kafka.isolation.level": "read_committed",
        }
        return session.readStream.format("kafka").options(**options, **tuned).load()

    query = (
        PROGRAMS[program](read, source, other)
        .writeStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": servers, "topic": output, "checkpointLocation": checkpoint})
        .outputMode("update" if program.endswith("count") else "append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [each for each in query.recentProgress if each["numInputRows"]][1:]
    rows = sum(each["numInputRows"] for each in batches)
    seconds = sum(each["durationMs"]["triggerExecution"] for each in batches) / 1000
    # The other systems count results: a join of two streams reads two records per result.
    print(f"rate {rows / seconds / (2 if program == 'stream-stream' else 1):.0f}", flush=True)
    session.stop()


def _stateless(read: Any, source: str, other: str) -> Any:
    lines = read(source).selectExpr("key", "string(value) value")
    return lines.where("length(value) > 3").selectExpr("key", "upper(value) value")


def _count(read: Any, source: str, other: str) -> Any:
    return read(source).groupBy("key").count().selectExpr("key", "string(count) value")


def _windowed_count(read: Any, source: str, other: str) -> Any:
    from pyspark.sql import functions as f

    lines = read(source).withWatermark("timestamp", "0 seconds")
    counts = lines.groupBy(f.window("timestamp", "1 minute"), "key").count()
    return counts.selectExpr("concat(string(key), '@', string(window.start)) key", "string(count) value")


def _stream_stream(read: Any, source: str, other: str) -> Any:
    left = read(source).selectExpr("key k1", "string(value) v1", "timestamp t1").withWatermark("t1", "1 second")
    right = read(other).selectExpr("key k2", "string(value) v2", "timestamp t2").withWatermark("t2", "1 second")
    near = "k1 = k2 AND t2 BETWEEN t1 - INTERVAL 1 SECOND AND t1 + INTERVAL 1 SECOND"
    from pyspark.sql.functions import expr

    return left.join(right, expr(near)).selectExpr("k1 key", "concat(v1, v2) value")


PROGRAMS = {
    "stateless": _stateless,
    "count": _count,
    "windowed-count": _windowed_count,
    "stream-stream": _stream_stream,
}

if __name__ == "__main__":
    main()
