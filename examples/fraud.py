"""Cards with too many payments: a Streams program on Spark, exactly once.

    python examples/fraud.py

For eight minutes, stolen cards (one of them slowly) and the card of an honest shop pay often. The program reports a
card at its eleventh payment within five minutes. Needs `pip install 'ottla[spark]'`.
"""

import random
from datetime import timedelta

import ottla
from ottla.client import Admin, Consumer, Producer
from ottla.streams import Application, StreamsBuilder, TimeWindows

#: Seconds between the payments of a card.
STOLEN, SHOP = {"card-13": 5, "card-29": 8, "card-57": 12, "card-71": 60}, {"card-88": 10}


def program() -> Application:
    builder = StreamsBuilder()
    payments = builder.stream("payments", key_serde="string", value_serde="json").group_by_key()
    counts = payments.windowed_by(TimeWindows.of(timedelta(minutes=5)).grace(timedelta(minutes=1))).count()
    fast = counts.to_stream(lambda window, count: window.key).filter(lambda card, count: count == 11)
    fast.to("suspicious", key_serde="string", value_serde="long")
    return builder.build(application_id="fraud")


def main(servers: str) -> None:
    draw = random.Random(7)
    with Admin(servers) as admin, Producer(servers, value_serializer="json") as producer:
        for topic in ("payments", "suspicious"):
            admin.create_topic(topic, 2, configs={"retention.ms": -1})  # payments of 1970 stay
        for second in range(1_500):
            fast = [card for card, pause in (STOLEN | SHOP).items() if 600 <= second < 1_080 and second % pause == 0]
            for card in [f"card-{draw.randrange(100)}", *fast]:
                producer.send("payments", {"amount": draw.randrange(100, 10_000)}, card, timestamp=second * 1000)
    print("the payments are sent; the program starts", flush=True)
    told: set[str] = set()
    consumer = Consumer(
        servers, group_id="bank", key_deserializer="str", auto_offset_reset="earliest", isolation_level="read_committed"
    )
    with consumer, program().start(servers) as app:
        consumer.subscribe(["suspicious"])
        while len(told) < 4 and not app.await_termination(0):
            for record in consumer.poll(1):
                print(f"suspicious: {record.key} at second {record.timestamp // 1000}", flush=True)
                told.add(record.key)
    hits = len(told & STOLEN.keys())
    print(f"precision {hits / len(told):.2f}, recall {hits / len(STOLEN):.2f}")


if __name__ == "__main__":
    with ottla.Node() as node:
        main(node.bootstrap_servers)
