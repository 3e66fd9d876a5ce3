"""Cards that pay too often: a Streams program on Spark, exactly once.

    python examples/fraud.py [bootstrap.servers]

Counts the payments of each card in windows of five minutes and tells of a card once it has paid more than ten times in
one. Needs `pip install 'ottla[spark]'`.
"""

import json
import random
import sys
from datetime import timedelta

import ottla
from ottla.client import Admin, Consumer, Producer
from ottla.streams import StreamsBuilder, TimeWindows
from ottla.streams.application import Application

STOLEN = "card-13"


def program() -> Application:
    builder = StreamsBuilder()
    payments = builder.stream("payments", key_serde="string", value_serde="json")
    five_minutes = TimeWindows.of(timedelta(minutes=5)).grace(timedelta(minutes=1))
    counts = payments.group_by_key().windowed_by(five_minutes).count()
    often = counts.to_stream(lambda card, count: card.key).filter(lambda card, count: count == 11)
    often.to("suspicious", key_serde="string", value_serde="long")
    return builder.build(application_id="fraud")


def main(servers: str) -> None:
    draw = random.Random(7)
    with Admin(servers) as admin, Producer(servers) as producer:
        for topic in ("payments", "suspicious"):
            admin.create_topic(topic, 2, configs={"retention.ms": -1})
        for second in range(1_500):
            card = STOLEN if 600 <= second < 700 and second % 5 == 0 else f"card-{draw.randrange(100)}"
            amount = json.dumps({"amount": draw.randrange(100, 10_000)})
            producer.send("payments", amount, card, timestamp=second * 1000)
    app = program()
    app.start(servers)
    with Consumer(
        servers, group_id="police", auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.subscribe(["suspicious"])
        while not (told := consumer.poll(1)):
            app.await_termination(0)
    app.stop()
    print("paid more than ten times in five minutes:", ", ".join(record.key.decode() for record in told))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with ottla.Node() as node:
            main(node.bootstrap_servers)
