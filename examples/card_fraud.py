"""Card fraud in forty lines: velocity in hopping windows, beside a table of cards with their limits.

    python examples/card_fraud.py

A payment is an alert if its card has more than three payments in ten minutes, or if it is larger than the card's limit.
The transactions are made by a seed, with fraud of two kinds among them, so that precision and recall can be printed.
"""

from datetime import timedelta
from random import Random
from typing import Any

from ottla.streams import Application, StreamsBuilder, TestDriver, TimeWindows


def fraud() -> Application:
    """Payments and cards in, alerts out."""
    builder = StreamsBuilder()
    payments = builder.stream("payments", key_serde="string", value_serde="json")
    cards = builder.table("cards", key_serde="string", value_serde="json")
    windows = TimeWindows.of(timedelta(minutes=10)).advance_by(timedelta(minutes=5)).grace(timedelta(minutes=1))
    velocity = (
        payments.group_by_key()
        .windowed_by(windows)
        .aggregate(list, lambda card, payment, ids: [*ids, payment["id"]], materialized="velocity")
        .to_stream(lambda windowed, ids: windowed.key)
        .filter(lambda card, ids: len(ids) > 3)
        .map_values(lambda ids: {"id": ids[-1], "why": "velocity"})
    )
    limit = (
        payments.join(cards, lambda payment, card: {**payment, "limit": card["limit"]})
        .filter(lambda card, payment: payment["amount"] > payment["limit"])
        .map_values(lambda payment: {"id": payment["id"], "why": "limit"})
    )
    velocity.merge(limit).to("alerts")
    return builder.build(application_id="fraud", key_serde="string", value_serde="json")


def transactions(seed: int) -> list[tuple[str, dict[str, Any], int, bool]]:
    """(card, payment, time in ms, is it fraud), by time."""
    rng, made, number = Random(seed), [], 0
    for _ in range(2000):
        card, at = f"card-{rng.randrange(200)}", rng.randrange(24 * 3_600_000)
        kind = rng.random()
        burst = 6 if kind < 0.01 else 1
        for step in range(burst):
            large = 0.01 <= kind < 0.02
            amount = rng.uniform(600, 2000) if large else rng.uniform(1, 400)
            fraudulent = large or (burst > 1 and step >= 3)
            made.append((card, {"id": number, "amount": round(amount, 2)}, at + step * 20_000, fraudulent))
            number += 1
    return sorted(made, key=lambda each: each[2])


def main() -> None:
    driver = TestDriver(fraud())
    cards, payments = driver.input_topic("cards"), driver.input_topic("payments")
    for number in range(200):
        cards.pipe(f"card-{number}", {"limit": 500}, timestamp=0)
    known = set()
    for card, payment, at, fraudulent in transactions(7):
        payments.pipe(card, payment, timestamp=at)
        if fraudulent:
            known.add(payment["id"])
    found = {alert["id"] for alert in driver.output_topic("alerts").read_values()}
    hits = len(found & known)
    print(f"alerts {len(found)}, fraud {len(known)}, precision {hits / len(found):.2f}, recall {hits / len(known):.2f}")


if __name__ == "__main__":
    main()
