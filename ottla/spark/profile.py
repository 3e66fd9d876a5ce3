"""The Spark settings of our sessions. A session's own `settings` win over them.

Measured on 2 cores, Kafka to Kafka, one record per batch: 700 ms with Spark's defaults, under 100 ms with these and the
source option `kafka.fetch.max.wait.ms=10`. Spark's consumer leaves a long poll in flight, and the next batch waits for
it. Set that option on every Kafka source; it cannot be set on the session.
"""

STREAMING = "org.apache.spark.sql.execution.streaming"


def profile(cores: int, scratch: str) -> dict[str, str]:
    """The settings of a session on `cores` cores of this machine, with its files below `scratch`."""
    return {
        # 4 attempts per task, as on a cluster; plain local[N] gives up at the first failure.
        "spark.master": f"local[{cores},4]",
        "spark.scheduler.mode": "FAIR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.ui.retainedExecutions": "5",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        # The default is 200 tasks per shuffle; a query's checkpoint fixes the number.
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.stateStore.providerClass": f"{STREAMING}.state.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # Without these three, each batch forks some 50 processes (chmod) for its checkpoint.
        "spark.sql.streaming.checkpointFileManagerClass": (
            f"{STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    }


def cluster_profile(master: str) -> dict[str, str]:
    """The settings of a session on a cluster. All others are Spark's defaults."""
    return {
        "spark.master": master,
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": f"{STREAMING}.state.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
