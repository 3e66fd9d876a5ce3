"""Histories of records: produce with and without sequences, fetch in and out of sessions, offsets, deleted records."""

from typing import Any

from tests.interop.oracle.wander.family import Draw
from tests.interop.oracle.wander.history import Values, ref
from tests.interop.scene import NOW_MS

TOPICS = {"t0": 2, "t1": 1}
_KINDS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"cleanup_policy": "compact"},
    {"message_timestamp_type": "LogAppendTime"},
    {"max_message_bytes": "400"},
    {"segment_bytes": "1048576", "message_timestamp_before_max_ms": "3600000"},
    {"compression_type": "gzip"},
    {"compression_type": "uncompressed"},
    {"cleanup_policy": "compact,delete"},
    {"cleanup_policy": ""},
    {"message_timestamp_type": "LogAppendTime", "cleanup_policy": "compact"},
    {"retention_bytes": "100", "segment_bytes": "1048576"},
)


def record(draw: Draw) -> None:
    for name, partitions in TOPICS.items():
        draw.topic(name, partitions, **draw.rng.choice(_KINDS))
    for number in range(2):
        kept = {f"p{number}.id": ["producer_id"], f"p{number}.epoch": ["producer_epoch"]}
        draw.ask("InitProducerId", keep=kept, transactional_id=None, transaction_timeout_ms=60_000)
    while len(draw.steps) < draw.length:
        kind = draw.pick(
            {
                "put": 6,
                "sequence": 6,
                "fetch": 5,
                "session": 4,
                "list": 3,
                "epoch": 1,
                "delete": 1.5,
                "see": 1,
                "more": 0.3,
            }
        )
        _STEPS[kind](draw)


def where(draw: Draw) -> tuple[str, int]:
    """A topic and a partition, mostly such that are there."""
    name = draw.mostly(draw.rng.choice(list(TOPICS)), "none", odds=0.96)
    return name, draw.mostly(draw.rng.randrange(TOPICS.get(name, 1)), 7, -1, odds=0.95)


def produce(draw: Draw, name: str, partition: int, records: Any, keep: dict[str, list[Any]] | None = None) -> None:
    asked = {**draw.of(name), "partition_data": [{"index": partition, "records": records}]}
    # For the same reason it comes with acks that are right.
    plain = isinstance(records, dict) and not {"bend", "cut", "times", "$bytes"} & {
        *records,
        *records.get("$batch", ()),
    }
    plain = plain and "codec" not in records["$batch"]
    acks = draw.mostly(-1, 1, 0, *([5] if plain else []), odds=0.8)
    draw.ask("Produce", on=draw.rng.randrange(2), keep=keep, acks=acks, timeout_ms=5000, topic_data=[asked])


def put(draw: Draw) -> None:
    """A batch without a producer; rarely one that is wrong."""
    rng = draw.rng
    made: Values = {"count": rng.randint(1, 5)}
    if draw.maybe(0.3):
        made["codec"] = rng.randrange(5)
    if draw.maybe(0.3):
        made["start"] = rng.choice([-500, 500, -7_200_000, 7_200_000, -40 * 86_400_000, 400 * 86_400_000, -1 << 60])
    if draw.maybe(0.15):
        made["null_key"] = True
    if draw.maybe(0.15):
        made["size"] = rng.choice([0, 100, 400, 2000])
    if draw.maybe(0.2):
        wrong: list[Values] = [
            {"bend": [[rng.randrange(120), 1 << rng.randrange(8)]]},
            {"cut": rng.randint(1, 60)},
            {"times": 2},
            {"leader_epoch": 7},
            {"base_offset": 5},
            {"control": True},
            {"transactional": True, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0},
            {"producer_id": 5},
            {"base_sequence": 3},
            {"producer_epoch": 3},
        ]
        made.update(rng.choice(wrong))
    records: Any = {"$batch": made}
    if draw.maybe(0.02):
        records = {"$bytes": rng.choice(["", "00" * 61])}
    # Which of two mistakes is told says nothing: a batch that may be wrong goes where there is a partition.
    plain = made.keys() <= {"count", "size", "start"} and "$batch" in records
    produce(draw, *(where(draw) if plain else ("t0", 0)), records)


def sequence(draw: Draw) -> None:
    """A batch of a producer: mostly the next, or one again, early, late, of another epoch."""
    rng = draw.rng
    who = f"p{rng.randrange(2)}"
    name, partition = where(draw)
    at = f"{who}.{name}.{partition}"
    if draw.maybe(0.06):
        kept = {f"{who}.id": ["producer_id"], f"{who}.epoch": ["producer_epoch"]}
        again: Values = {
            "producer_id": ref(f"{who}.id"),
            "producer_epoch": ref(f"{who}.epoch", plus=draw.mostly(0, 1, -1)),
        }
        draw.ask("InitProducerId", keep=kept, transactional_id=None, transaction_timeout_ms=60_000, **again)
    count = rng.randint(1, 3)
    moved = draw.mostly(0, -1, -2, -3, -4, -6, -10, 1, 2, 5, odds=0.65)
    made = {
        "count": count,
        "producer_id": draw.mostly(ref(f"{who}.id"), ref(f"{who}.id", plus=1000), odds=0.97),
        "producer_epoch": ref(f"{who}.epoch", 0, draw.mostly(0, 1, 2, odds=0.92)),
        "base_sequence": draw.mostly(ref(at, 0, moved), 0, 0x7FFFFFFF, 0x7FFFFFFE, odds=0.93),
    }
    kept = {at: [f"=+{count}"]} if not moved else {}
    produce(draw, name, partition, {"$batch": made}, kept)


def fetch(draw: Draw) -> None:
    rng = draw.rng
    topics = []
    for name in rng.sample(list(TOPICS), rng.randint(1, 2)):
        numbers = rng.sample(range(TOPICS[name]), rng.randint(1, TOPICS[name]))
        if draw.maybe(0.05):
            numbers.append(draw.mostly(9, -1, numbers[0]))
        topics.append({**draw.of(name, "topic"), "partitions": [wanted(draw, number) for number in numbers]})
    if draw.maybe(0.04):
        topics.append({**draw.of("none", "topic"), "partitions": [wanted(draw, 0)]})
    draw.ask("Fetch", on=rng.randrange(2), topics=topics, session_epoch=-1, **limits(draw))


def wanted(draw: Draw, partition: int) -> Values:
    rng = draw.rng
    return {
        "partition": partition,
        "fetch_offset": draw.mostly(rng.randrange(6), rng.randrange(40), -1, 1 << 40, odds=0.6),
        "partition_max_bytes": draw.mostly(1 << 20, 0, 1, 150),
        "current_leader_epoch": draw.mostly(-1, 0, 1, odds=0.8),
        "last_fetched_epoch": draw.mostly(-1, 0, 1, odds=0.9),
    }


def limits(draw: Draw) -> Values:
    return {
        "max_wait_ms": draw.mostly(0, 20),
        "min_bytes": draw.mostly(1, 0, 1 << 30, -1),
        "max_bytes": draw.mostly(1 << 20, 0, 1, 200, 0x7FFFFFFF),
        "isolation_level": draw.mostly(draw.rng.randrange(2), 0, odds=0.99),
        "rack_id": draw.mostly("", "r"),
    }


def session(draw: Draw) -> None:
    """A step of a fetch session: opened, gone on with, with partitions added and forgotten, closed."""
    rng = draw.rng
    who = f"s{rng.randrange(2)}"
    topics = []
    for name in rng.sample(list(TOPICS), rng.randint(0, 2)):
        numbers = rng.sample(range(TOPICS[name]), rng.randint(1, TOPICS[name]))
        topics.append({**draw.of(name, "topic"), "partitions": [wanted(draw, number) for number in numbers]})
    if draw.maybe(0.06):
        topics.append({**draw.of(draw.mostly("none", "t0"), "topic"), "partitions": [wanted(draw, draw.mostly(0, 9))]})
    forgotten = []
    if draw.maybe(0.2):
        name = draw.mostly(rng.choice(list(TOPICS)), "none")
        forgotten.append({**draw.of(name, "topic"), "partitions": [rng.randrange(3)]})
    epoch = draw.mostly(ref(f"{who}.epoch", 0), 0, -1, ref(f"{who}.epoch", 0, 1), ref(f"{who}.epoch", 0, -1))
    number = 0 if epoch == 0 else draw.mostly(ref(f"{who}.id", 0), ref(f"{who}.id", 0, 1), odds=0.97)
    fine = [1, 3, 74, 75, 76, 100, 103]  # errors of a partition, not of the session
    kept: dict[str, list[Any]] = {
        f"{who}.id": ["session_id", *fine],
        f"{who}.epoch": ["=1" if epoch == 0 else "=+1", *fine],
    }
    draw.ask(
        "Fetch",
        draw.version("Fetch", 7),
        on=rng.randrange(2),
        keep=kept,
        session_id=number,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=forgotten,
        **limits(draw),
    )


def listed(draw: Draw) -> None:
    name, partition = where(draw)
    timestamp = draw.rng.choice(
        [-1, -2, -3, -4, -5, -6, -7, 0, NOW_MS, NOW_MS + 1, NOW_MS + 499, NOW_MS + 501, NOW_MS + 10**9]
    )
    asked = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": draw.mostly(-1, 0, 1)}
    topics = [{"name": f"~{name}", "partitions": [asked] * draw.mostly(1, 2, 0, odds=0.95)}]
    if draw.maybe(0.2):
        other = {"partition_index": draw.mostly(0, 3), "timestamp": draw.mostly(-1, -2, -3, NOW_MS)}
        topics.append({"name": draw.mostly("~t1", "~none", "", "~bad name"), "partitions": [other]})
    level = draw.rng.randrange(2)
    draw.ask("ListOffsets", replica_id=draw.mostly(-1, -2, 0, 1), isolation_level=level, topics=topics, timeout_ms=5000)


def epoch(draw: Draw) -> None:
    name, partition = where(draw)
    rng = draw.rng
    asked = {
        "partition": partition,
        "current_leader_epoch": draw.mostly(-1, 0, 1, 5, odds=0.7),
        "leader_epoch": rng.choice([-2, -1, 0, 0, 0, 1, 7]),
    }
    topics = [{"topic": f"~{name}", "partitions": [asked]}]
    draw.ask("OffsetForLeaderEpoch", replica_id=draw.mostly(-1, -2, 1), topics=topics)


def delete(draw: Draw) -> None:
    name, partition = where(draw)
    asked = {"partition_index": partition, "offset": draw.rng.choice([-1, 0, 1, 2, 3, 5, 8, 100, -2])}
    topics = [{"name": f"~{name}", "partitions": draw.mostly([asked], [], [asked, {**asked, "partition_index": 9}])}]
    if draw.maybe(0.1):
        topics.append({"name": draw.mostly("~bad name", "~none", "", "__consumer_offsets"), "partitions": [asked]})
    draw.ask("DeleteRecords", topics=topics, timeout_ms=5000)


def see(draw: Draw) -> None:
    """What is known of the producers."""
    name, partition = where(draw)
    draw.ask("DescribeProducers", topics=[{"name": f"~{name}", "partition_indexes": [partition]}])


def more(draw: Draw) -> None:
    """The topic goes, grows, or comes again under its name."""
    name = draw.rng.choice(list(TOPICS))
    kind = draw.pick({"delete": 1, "make": 2, "grow": 1})
    if kind == "delete":
        draw.ask("DeleteTopics", 6, topics=[{"name": f"~{name}"}], timeout_ms=5000)
    elif kind == "make":
        draw.topic(name, TOPICS[name])
    else:
        draw.ask("CreatePartitions", topics=[{"name": f"~{name}", "count": 3, "assignments": None}], timeout_ms=5000)


_STEPS = {
    "put": put,
    "sequence": sequence,
    "fetch": fetch,
    "session": session,
    "list": listed,
    "epoch": epoch,
    "delete": delete,
    "see": see,
    "more": more,
}
