"""Streams programs on Spark, exactly once (docs/internals/streams-on-spark.md).

layout      the topics, their partitions and the tasks of a program; internal topics are created here
control     the line between the driver and its workers: stop, progress, errors
task        a task with its producer: restored from its changelogs, every step a transaction
write       what a transaction sends
restore     a task's state, read back from the changelogs and the committed offsets
worker      what runs inside a Spark task: a share of the stream tasks, until the driver says stop
commit      what a step writes: one transaction, or at least once
last_run    what an application last ran, kept in the cluster and compared at a start
alive       that a program runs, told in the cluster
query       stores of a running program, read from the driver
http        the same over HTTP, with metrics
metric      what workers measure, for Prometheus
place       where workers run, and how the user's modules come to them
running     the driver's side: start, stop, await
"""
