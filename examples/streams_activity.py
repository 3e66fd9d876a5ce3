"""User activity as sessions: how long users stay, what they look at, and which carts they abandon.

    python examples/streams_activity.py                      generated page views, on the test driver
    ottla streams run examples/streams_activity.py           on Spark, exactly once, from topic "views" to "sessions"

A user's views at most 30 minutes apart form a session. Views arrive out of order, as phones send them late; the grace
period of five minutes covers that. A session is emitted once, when it has closed.
"""

import random
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

from ottla.streams import Application, BufferConfig, SessionWindows, StreamsBuilder, Suppressed, TestDriver

GAP = timedelta(minutes=30)
PAGES = ("home", "search", "product", "product", "cart", "checkout")


def add(user: str, view: dict[str, Any], session: dict[str, Any]) -> dict[str, Any]:
    return {"views": session["views"] + 1, "pages": sorted({*session["pages"], view["page"]})}


def merge(user: str, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"views": one["views"] + other["views"], "pages": sorted({*one["pages"], *other["pages"]})}


def program() -> Application:
    builder = StreamsBuilder()
    views = builder.stream("views", key_serde="string", value_serde="json")
    windows = SessionWindows.of_inactivity_gap_and_grace(GAP, timedelta(minutes=5))
    sessions = (
        views.group_by_key()
        .windowed_by(windows)
        .aggregate(lambda: {"views": 0, "pages": []}, add, merge, materialized="open-sessions")
        .suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
        .to_stream()
        .map(
            lambda key, session: (
                key.key,
                {**session, "start": key.window.start, "minutes": (key.window.end - key.window.start) // 60_000},
            )
        )
    )
    sessions.to("sessions")
    left = sessions.filter(lambda user, session: "cart" in session["pages"] and "checkout" not in session["pages"])
    left.to("abandoned-carts")
    return builder.build("activity", key_serde="string", value_serde="json")


def views(seed: int) -> Iterator[tuple[str, str, int]]:
    """(user, page, ms): two visits of each user in a day, sent up to four minutes late."""
    draw, made = random.Random(seed), []
    for user in range(200):
        for hour in (9, 15):
            at = (hour * 60 + draw.randrange(120)) * 60_000
            for page in PAGES[: draw.randrange(1, len(PAGES) + 1)]:
                made.append((at + draw.randrange(240_000), f"user-{user}", page, at))
                at += draw.randrange(10_000, 1_200_000)
    for _, name, page, at in sorted(made):
        yield name, page, at


def main() -> None:
    expected: dict[str, list[int]] = {}
    with TestDriver(program()) as driver:
        topic = driver.input_topic("views")
        for user, page, at in views(7):
            topic.pipe(user, {"page": page}, at)
            expected.setdefault(user, []).append(at)
        topic.pipe("clock", {"page": "home"}, 48 * 3_600_000)  # a later view closes the open sessions
        sessions = driver.output_topic("sessions").read_key_values()
        left = driver.output_topic("abandoned-carts").read_key_values()
    count = 0
    for times in expected.values():
        count += 1 + sum(later - at > GAP.total_seconds() * 1000 for at, later in pairwise(sorted(times)))
    longest = max(sessions, key=lambda one: one[1]["minutes"])
    print(f"{sum(one['views'] for _, one in sessions)} views in {len(sessions)} sessions ({count} counted by hand)")
    print(f"the longest: {longest[0]}, {longest[1]['minutes']} minutes, {longest[1]['views']} views")
    print(f"{len(left)} sessions left something in the cart")


if __name__ == "__main__":
    main()
