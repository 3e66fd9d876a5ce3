"""Streams programs on Spark, exactly once (docs/internals/streams-on-spark.md).

layout      the topics, partitions and tasks of a program; creates the internal topics
control     the connection between the driver and its workers: stop, progress, errors
task        a task with its producer: restored from its changelogs, each step a transaction
write       sends the outputs and changelog entries of a transaction
cells       a task's numbers as the metadata of its committed offsets
restore     reads a task's stores back from their changelogs
worker      the loop inside a Spark task: runs a share of the stream tasks until the driver stops it
commit      commits a step: exactly once or at least once
last_run    the plan of an application's last run, kept in the cluster and checked at each start
alive       the heartbeat of a running program, kept in the cluster
query       queries of a running program's stores, from the driver
http        the same queries and the metrics over HTTP
metric      the workers' metrics for Prometheus
purge       deletes processed records from repartition topics
setting     Kafka Streams' settings in `config`
place       where workers run, and how they get the user's modules
running     the driver's side: start, stop, await
"""
