"""Card fraud by three rules and a score: velocity in hopping windows, a table of limits, countries in sessions.

    python examples/card_fraud.py

A payment raises an alert if its card has more than three payments in ten minutes, if it exceeds the card's limit, or if
it comes from another country than the first payment of the session (pauses of up to half an hour). Alerts add up to the
account's score. The transactions are generated from a seed, with fraud of each kind, so the program can print precision
and recall.
"""

from datetime import timedelta
from random import Random
from typing import Any

from ottla.streams import Application, KTable, SessionWindows, StreamsBuilder, TestDriver, TimeWindows

#: The weight of each kind of alert, and the score from which an account is reported. A payment may be in two windows.
WEIGHTS, TOLD_FROM = {"velocity": 1, "limit": 3, "place": 5}, 3
MINUTE = timedelta(minutes=1)


def fraud() -> Application:
    """Payments and cards in, alerts and the scores of accounts out."""
    builder = StreamsBuilder()
    payments = builder.stream("payments", key_serde="string", value_serde="json")
    cards: KTable[str, Any] = builder.table("cards", key_serde="string", value_serde="json")
    velocity = (
        payments.group_by_key()
        .windowed_by(TimeWindows.of(10 * MINUTE).advance_by(5 * MINUTE).grace(MINUTE))
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
    place = (
        payments.group_by_key()
        .windowed_by(SessionWindows.of_inactivity_gap_and_grace(30 * MINUTE, MINUTE))
        .aggregate(
            list,
            lambda card, payment, seen: [*seen, [payment["id"], payment["country"]]],
            lambda card, one, other: one + other,
            materialized="places",
        )
        .to_stream(lambda windowed, seen: windowed.key)
        .filter(lambda card, seen: seen is not None and seen[-1][1] != seen[0][1])
        .map_values(lambda seen: {"id": seen[-1][0], "why": "place"})
    )
    alerts = velocity.merge(limit).merge(place)
    alerts.to("alerts")
    (
        alerts.join(cards, lambda alert, card: {**alert, "account": card["account"]})
        .group_by(lambda card, alert: alert["account"])
        .aggregate(lambda: 0, lambda account, alert, score: score + WEIGHTS[alert["why"]], materialized="scores")
        .to_stream()
        .filter(lambda account, score: score >= TOLD_FROM)
        .to("scores")
    )
    return builder.build(application_id="fraud", key_serde="string", value_serde="json")


def transactions(seed: int) -> list[tuple[str, dict[str, Any], int, bool]]:
    """(card, payment, time in ms, whether it is fraud), by time."""
    rng, made, number = Random(seed), [], 0
    for _ in range(2000):
        card, at = f"card-{rng.randrange(200)}", rng.randrange(24 * 3_600_000)
        kind = rng.random()
        large, stolen = 0.01 <= kind < 0.02, 0.02 <= kind < 0.03
        burst = 6 if kind < 0.01 else 2 if stolen else 1
        for step in range(burst):
            amount = round(rng.uniform(600, 2000) if large else rng.uniform(1, 400), 2)
            country = "FR" if stolen and step == 1 else "CZ"
            fraudulent = large or country == "FR" or (burst > 2 and step >= 3)
            made.append((card, {"id": number, "amount": amount, "country": country}, at + step * 20_000, fraudulent))
            number += 1
    return sorted(made, key=lambda each: each[2])


def main() -> None:
    driver = TestDriver(fraud())
    cards, payments = driver.input_topic("cards"), driver.input_topic("payments")
    for number in range(200):
        cards.pipe(f"card-{number}", {"limit": 500, "account": f"account-{number // 2}"}, timestamp=0)
    known, robbed = set(), set()
    for card, payment, at, fraudulent in transactions(7):
        payments.pipe(card, payment, timestamp=at)
        if fraudulent:
            known.add(payment["id"])
            robbed.add(f"account-{int(card[5:]) // 2}")
    found = {alert["id"] for alert in driver.output_topic("alerts").read_values()}
    hits = len(found & known)
    print(f"alerts {len(found)}, fraud {len(known)}, precision {hits / len(found):.2f}, recall {hits / len(known):.2f}")
    scores = driver.output_topic("scores").read_map()
    worst = max(scores, key=lambda account: (scores[account], account))
    print(f"accounts reported {len(scores)}, robbed {len(robbed)}, both {len(scores.keys() & robbed)}")
    print(f"the highest score is {scores[worst]}, of {worst}")


if __name__ == "__main__":
    main()
