"""Histories of transactions: several producers of one transactional id, both protocols, fencing, offsets, markers."""

from typing import Any

from tests.interop.oracle.wander.family import Draw
from tests.interop.oracle.wander.history import Values, ref

TOPICS = {"t0": 2, "t1": 1}
_NAMES = ("a", "b")
_GROUP = "g"


def transaction(draw: Draw) -> None:
    for name, partitions in TOPICS.items():
        draw.topic(name, partitions)
    for name in _NAMES:
        draw.ask("FindCoordinator", 6, key_type=1, coordinator_keys=[f"~{name}"])
    draw.ask("FindCoordinator", 6, key_type=0, coordinator_keys=[f"~{_GROUP}"])
    weights = {
        "init": 3.0,
        "add": 4,
        "put": 7,
        "offsets": 2,
        "commit": 3,
        "end": 5,
        "describe": 1,
        "list": 0.7,
        "read": 2,
        "producers": 1,
        "committed": 1,
        "markers": 0.4,
        "delete": 0.3,
    }
    # Some histories are of one protocol, some of both.
    lowest, highest = draw.rng.choice([(0, 11), (12, 99), (0, 99)])
    draw.ask("InitProducerId", 5, keep=_kept("x"), transactional_id="~a", transaction_timeout_ms=60_000)
    while len(draw.steps) < draw.length:
        _STEPS[draw.pick(weights)](draw, lowest, highest)


def _kept(who: str) -> dict[str, list[Any]]:
    return {f"{who}.id": ["producer_id"], f"{who}.epoch": ["producer_epoch"], f"{who}.t0": ["=0"], f"{who}.t1": ["=0"]}


def _who(draw: Draw) -> tuple[str, str]:
    """A producer, and the transactional id that it goes by."""
    who = draw.mostly("x", "y", "z", odds=0.6)
    name = "b" if who == "z" else "a"
    return who, draw.mostly(name, "b", "a", "c", odds=0.97)


def identity(draw: Draw, who: str, name: str) -> Values:
    return {
        "transactional_id": draw.mostly(f"~{name}", "", odds=0.99),
        "producer_id": draw.mostly(
            ref(f"{who}.id", 888_888), ref(f"{who}.id", 0, 1), ref("x.id", 888_888), 777_777, odds=0.97
        ),
        "producer_epoch": ref(f"{who}.epoch", 5, draw.mostly(0, 1, -1, 2, odds=0.95)),
    }


def init(draw: Draw, lowest: int, highest: int) -> None:
    who, name = _who(draw)
    more: Values = {}
    if draw.maybe(0.35):
        more = {
            "producer_id": ref(f"{who}.id", -1, draw.mostly(0, 1, odds=0.95)),
            "producer_epoch": ref(f"{who}.epoch", -1, draw.mostly(0, 1, -1, odds=0.9)),
        }
    timeout_ms = draw.mostly(60_000, 0, -1, 900_001, 5, odds=0.96)
    if timeout_ms == 5:
        timeout_ms = 900_000
    named = draw.mostly(f"~{name}", "", odds=0.99)
    draw.ask("InitProducerId", keep=_kept(who), transactional_id=named, transaction_timeout_ms=timeout_ms, **more)


def add(draw: Draw, lowest: int, highest: int) -> None:
    who, name = _who(draw)
    rng = draw.rng
    topics: list[Values] = [{"name": "~t0", "partitions": rng.sample(range(2), rng.randint(1, 2))}]
    if draw.maybe(0.3):
        topics.append({"name": "~t1", "partitions": [0]})
    elif draw.maybe(0.05):
        topics.append(draw.mostly({"name": "~none", "partitions": [0]}, {"name": "~t1", "partitions": [7, 0]}))
    said = identity(draw, who, name)
    version = draw.version("AddPartitionsToTxn")
    if version >= 4:
        more: list[Values] = [{**said, "verify_only": draw.maybe(0.4), "topics": topics}]
        if draw.maybe(0.2) and said["transactional_id"] != "~b":
            more.append({**identity(draw, "z", "b"), "verify_only": draw.maybe(0.5), "topics": topics[:1]})
        if draw.maybe(0.1):
            more.append({**said, "transactional_id": "~d", "verify_only": draw.maybe(), "topics": []})
        draw.ask("AddPartitionsToTxn", version, transactions=more)
    else:
        values = {f"v3_and_below_{key}": value for key, value in said.items()}
        draw.ask("AddPartitionsToTxn", version, v3_and_below_topics=topics, **values)


def put(draw: Draw, lowest: int, highest: int) -> None:
    who, name = _who(draw)
    topic = draw.mostly("t0", "t1", odds=0.7)
    partition = 0 if topic == "t1" or draw.maybe(0.7) else 1
    at = f"{who}.{topic}" if partition == 0 else f"{who}.{topic}.1"
    count = draw.rng.randint(1, 2)
    moved = draw.mostly(0, -1, -2, 1, odds=0.93)
    said = identity(draw, who, name)
    made = {
        "count": count,
        "producer_id": said["producer_id"],
        "producer_epoch": said["producer_epoch"],
        # Apache remembers a refused sequence below 0 as the first that the partition saw, and then refuses 0.
        "base_sequence": draw.mostly({**ref(at, 0, moved), "least": 0}, 0, odds=0.95),
        "transactional": draw.mostly(True, False, odds=0.95),
    }
    asked = {**draw.of(topic), "partition_data": [{"index": partition, "records": {"$batch": made}}]}
    draw.ask(
        "Produce",
        draw.version("Produce", lowest, highest),
        keep={at: [f"=+{count}"]} if not moved else {},
        transactional_id=draw.mostly(said["transactional_id"], None, odds=0.98),
        acks=draw.mostly(-1, 1, odds=0.97),
        timeout_ms=5000,
        topic_data=[asked],
    )


def offsets(draw: Draw, lowest: int, highest: int) -> None:
    who, name = _who(draw)
    draw.ask("AddOffsetsToTxn", group_id=draw.mostly(f"~{_GROUP}", "", odds=0.97), **identity(draw, who, name))


def commit(draw: Draw, lowest: int, highest: int) -> None:
    who, name = _who(draw)
    rng = draw.rng
    version = draw.version("TxnOffsetCommit", *((5, 99) if lowest else (0, 99)))
    where = {"partition_index": draw.mostly(0, 1, 7, odds=0.8), "committed_offset": rng.randrange(20)}
    where["committed_metadata"] = draw.mostly("m", None, "")
    topics = [{"name": draw.mostly("~t0", "~none", odds=0.97), "partitions": [where]}]
    if draw.maybe(0.2):
        other = {"partition_index": 0, "committed_offset": 3}
        topics.append({"name": "~t1", "partitions": draw.mostly([other], [])})
    draw.ask(
        "TxnOffsetCommit",
        version,
        group_id=draw.mostly(f"~{_GROUP}", "", odds=0.98),
        member_id=draw.mostly("", "nobody", odds=0.95),
        generation_id_or_member_epoch=draw.mostly(-1, 0, 3, odds=0.95),
        group_instance_id=draw.mostly(None, "i", odds=0.97),
        topics=topics,
        **identity(draw, who, name),
    )


def end(draw: Draw, lowest: int, highest: int) -> None:
    who, name = _who(draw)
    version = draw.version("EndTxn", *((5, 99) if lowest else (0, 4) if highest < 12 else (0, 99)))
    kept = _kept(who) if version >= 5 else {}
    draw.ask("EndTxn", version, keep=kept, committed=draw.maybe(0.6), **identity(draw, who, name))


def describe(draw: Draw, lowest: int, highest: int) -> None:
    draw.ask("DescribeTransactions", transactional_ids=draw.rng.sample(["~a", "~b", "~none", ""], 2))


def listed(draw: Draw, lowest: int, highest: int) -> None:
    states = draw.mostly([], ["Ongoing"], ["Empty", "CompleteCommit"], ["CompleteAbort", "Nonsense"], odds=0.3)
    ids = [ref("x.id", -5), ref("z.id", -5)]
    pattern = draw.mostly(None, "~a", "", "[", ".*", odds=0.6)
    long = draw.mostly(-1, 0, 10_000_000, odds=0.8)
    draw.ask(
        "ListTransactions",
        state_filters=states,
        producer_id_filters=ids,
        duration_filter=long,
        transactional_id_pattern=pattern,
    )


def read(draw: Draw, lowest: int, highest: int) -> None:
    """A fetch or the end of a partition."""
    topic = draw.mostly("t0", "t1", odds=0.7)
    level = draw.mostly(1, 0, odds=0.7)
    if draw.maybe(0.4):
        asked = [{"partition_index": number, "timestamp": -1} for number in range(TOPICS[topic])]
        topics = [{"name": f"~{topic}", "partitions": asked}]
        reader = draw.mostly(-1, -2, 1)
        draw.ask("ListOffsets", draw.version("ListOffsets", 2), replica_id=reader, isolation_level=level, topics=topics)
        return
    wanted = [
        {
            "partition": number,
            "fetch_offset": draw.mostly(0, draw.rng.randrange(20), odds=0.6),
            "partition_max_bytes": 1 << 20,
        }
        for number in range(TOPICS[topic])
    ]
    topics = [{**draw.of(topic, "topic"), "partitions": wanted}]
    draw.ask("Fetch", topics=topics, session_epoch=-1, max_wait_ms=0, isolation_level=level, max_bytes=1 << 20)


def producers(draw: Draw, lowest: int, highest: int) -> None:
    topics = [{"name": f"~{name}", "partition_indexes": list(range(count))} for name, count in TOPICS.items()]
    draw.ask("DescribeProducers", topics=topics)


def committed(draw: Draw, lowest: int, highest: int) -> None:
    stable = draw.mostly(False, True)
    version = draw.version("OffsetFetch", 7, 9)
    topics = draw.mostly(None, [{"name": "~t0", "partition_indexes": [0, 1, 7]}])
    group = {"group_id": f"~{_GROUP}", "topics": topics}
    if version >= 8:
        draw.ask("OffsetFetch", version, groups=[group], require_stable=stable)
    else:
        draw.ask("OffsetFetch", version, **group, require_stable=stable)


def markers(draw: Draw, lowest: int, highest: int) -> None:
    """A marker that no coordinator sent: what an operator ends a hanging transaction with."""
    who, _ = _who(draw)
    topics = [{"name": draw.mostly("~t0", "~none"), "partition_indexes": draw.mostly([0], [0, 1], [7])}]
    draw.ask(
        "WriteTxnMarkers",
        markers=[
            {
                "producer_id": draw.mostly(ref(f"{who}.id", 888_888), 12345),
                # After a newer epoch the coordinator's own marker is refused, and Apache never gets over that.
                "producer_epoch": ref(f"{who}.epoch", 0, draw.mostly(0, -1)),
                "transaction_result": draw.maybe(),
                "topics": topics,
                "coordinator_epoch": draw.mostly(0, -1),
                "transaction_version": draw.mostly(0, 1, 2),
            }
            for _ in range(draw.mostly(1, 0, 2))
        ],
    )


def delete(draw: Draw, lowest: int, highest: int) -> None:
    """What may go while a transaction is under way: offsets, the group, records."""
    kind = draw.pick({"offsets": 1, "group": 1, "records": 1})
    if kind == "offsets":
        topics = [{"name": "~t0", "partitions": [{"partition_index": 0}]}]
        draw.ask("OffsetDelete", group_id=f"~{_GROUP}", topics=topics)
    elif kind == "group":
        draw.ask("DeleteGroups", groups_names=[f"~{_GROUP}"])
    else:
        partition = {"partition_index": 0, "offset": draw.mostly(-1, 1, 3)}
        draw.ask("DeleteRecords", topics=[{"name": "~t0", "partitions": [partition]}], timeout_ms=5000)


_STEPS = {
    "init": init,
    "add": add,
    "put": put,
    "offsets": offsets,
    "commit": commit,
    "end": end,
    "describe": describe,
    "list": listed,
    "read": read,
    "producers": producers,
    "committed": committed,
    "markers": markers,
    "delete": delete,
}
