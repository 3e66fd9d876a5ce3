"""Cards that pay too often: a Streams program on Spark, exactly once.

    python examples/fraud.py [bootstrap.servers]

Counts the payments of each card in windows of five minutes and tells of a card once it has paid more than ten times in
one. The payments are made up, so it is known which cards are stolen: some pay fast, one slowly, and one honest shop's
card pays fast, too. What was told is compared with that. Needs `pip install 'ottla[spark]'`.
"""

import json
import random
import sys
from collections.abc import Iterator
from datetime import timedelta

import ottla
from ottla.client import Admin, Consumer, Producer
from ottla.streams import StreamsBuilder, TimeWindows
from ottla.streams.application import Application

#: Stolen card to the seconds between its payments; the slow one is not found by this rule.
STOLEN = {"card-13": 5, "card-29": 8, "card-57": 12, "card-71": 60}
#: An honest card that pays as fast.
SHOP = ("card-88", 10)


def program() -> Application:
    builder = StreamsBuilder()
    payments = builder.stream("payments", key_serde="string", value_serde="json")
    five_minutes = TimeWindows.of(timedelta(minutes=5)).grace(timedelta(minutes=1))
    counts = payments.group_by_key().windowed_by(five_minutes).count()
    often = counts.to_stream(lambda card, count: card.key).filter(lambda card, count: count == 11)
    often.to("suspicious", key_serde="string", value_serde="long")
    return builder.build(application_id="fraud")


def payments(seed: int) -> Iterator[tuple[str, int]]:
    """(card, second): an honest payment each second, and for eight minutes those of the fast cards."""
    draw = random.Random(seed)
    for second in range(1_500):
        yield f"card-{draw.randrange(100)}", second
        for card, pause in (*STOLEN.items(), SHOP):
            if 600 <= second < 1_080 and second % pause == 0:
                yield card, second


def main(servers: str) -> None:
    with Admin(servers) as admin, Producer(servers) as producer:
        for topic in ("payments", "suspicious"):
            admin.create_topic(topic, 2, configs={"retention.ms": -1})
        draw, made = random.Random(7), list(payments(7))
        for card, second in made:
            amount = json.dumps({"amount": draw.randrange(100, 10_000)})
            producer.send("payments", amount, card, timestamp=second * 1000)
    print(f"{len(made):,} payments of {len({card for card, _ in made})} cards; the program starts", flush=True)
    app = program()
    app.start(servers)
    told: set[str] = set()
    with Consumer(
        servers, group_id="police", auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.subscribe(["suspicious"])
        while len(told) < len(STOLEN):  # as many as there are: three stolen ones and the shop's
            for record in consumer.poll(1):
                told.add(card := record.key.decode())
                print(f"suspicious: {card} at second {record.timestamp // 1000}", flush=True)
            app.await_termination(0)
    app.stop()
    hits = len(told & STOLEN.keys())
    print("paid more than ten times in five minutes:", ", ".join(sorted(told)))
    print(f"precision {hits / len(told):.2f}, recall {hits / len(STOLEN):.2f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with ottla.Node() as node:
            main(node.bootstrap_servers)
