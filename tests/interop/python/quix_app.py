"""Quix Streams counts the records of each key, exactly once: its transactions, its group, its state's changelog.

python quix_app.py BOOTSTRAP GROUP INPUT OUTPUT STATE_DIRECTORY
"""

import sys
from typing import Any

from quixstreams import Application
from quixstreams.models import TopicConfig

bootstrap, group, source, out, directory = sys.argv[1:]
one_replica = TopicConfig(num_partitions=3, replication_factor=1)
application = Application(
    broker_address=bootstrap,
    consumer_group=group,
    processing_guarantee="exactly-once",
    auto_offset_reset="earliest",
    commit_interval=0.3,
    state_dir=directory,
    consumer_extra_config={"session.timeout.ms": 6000},
    # The transaction of a program that was killed is open for so long.
    producer_extra_config={"transaction.timeout.ms": 10_000},
    loglevel="WARNING",
)


def count(value: str, state: Any) -> str:
    number = state.get("count", 0) + 1
    state.set("count", number)
    return str(number)


frame = application.dataframe(
    application.topic(source, key_deserializer="str", value_deserializer="str", config=one_replica)
)
frame.apply(count, stateful=True).to_topic(
    application.topic(out, key_serializer="str", value_serializer="str", config=one_replica)
)
application.run()
