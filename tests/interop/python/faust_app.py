"""Faust counts the records of each key in a table: its group, its assignor, its changelog.

The counts go to a file as they change, a line of JSON each.

python faust_app.py BOOTSTRAP GROUP INPUT DIRECTORY FILE
"""

import json
import sys
from typing import Any

import faust

bootstrap, group, source, directory, written = sys.argv[1:]
application = faust.App(
    group,
    broker=f"kafka://{bootstrap}",
    store="memory://",
    datadir=directory,
    topic_partitions=3,
    topic_replication_factor=1,
    broker_commit_interval=0.3,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=2.0,
    consumer_auto_offset_reset="earliest",
    web_enabled=False,
)
topic = application.topic(source, key_type=str, value_type=str, value_serializer="raw", partitions=3)
counts = application.Table("counts", default=int, partitions=3)


async def count(stream: Any) -> None:
    async for event in stream.events():
        counts[event.key] += 1
        output.write(json.dumps(dict(counts.items())) + "\n")


application.agent(topic)(count)
sys.argv[1:] = ["worker", "--loglevel=error", "--without-web"]
with open(written, "a", buffering=1) as output:
    application.main()
