"""Histories of requests whose bytes are wrong: cut, too long, overwritten, of versions and APIs that do not exist.

A step's `$bent` says what is done to the encoded request (`bend.py`). Text that is not UTF-8 is not sent (decision
0011), nor Metadata, in which a byte may have a topic made.
"""

from tests.interop.oracle.wander.family import Draw
from tests.interop.oracle.wander.history import Values
from tests.interop.oracle.wander.raw import request

#: Those whose every misreading is harmless: nothing is made that other histories meet, and nobody waits for long.
_APIS = (
    "ApiVersions",
    "FindCoordinator",
    "ListOffsets",
    "OffsetForLeaderEpoch",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetDelete",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "ShareGroupDescribe",
    "DescribeShareGroupOffsets",
    "DescribeConfigs",
    "DescribeClientQuotas",
    "DescribeUserScramCredentials",
    "DescribeProducers",
    "DescribeTransactions",
    "ListTransactions",
    "DescribeTopicPartitions",
    "DescribeCluster",
    "DescribeQuorum",
    "AddPartitionsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
    "InitProducerId",
)
_OTHERS = ("00", "01", "02", "7f", "ff", "80", "0000", "ffff", "7fff", "ffffffff", "7fffffff", "80000000", "ffffffff0f")


def byte(draw: Draw) -> None:
    draw.topic("t0", 2)
    draw.ask("FindCoordinator", 6, key_type=0, coordinator_keys=["~g"])
    draw.ask("FindCoordinator", 6, key_type=1, coordinator_keys=["~g"])
    while len(draw.steps) < draw.length:
        api = draw.rng.choice(_APIS)
        version = draw.version(api)
        values = request(draw, api, version)
        if values is not None:
            draw.ask(api, version, on=draw.rng.randrange(2), **values, **{"$bent": bent(draw)})


def bent(draw: Draw) -> Values:
    rng = draw.rng
    kind = draw.pick({"cut": 2, "more": 1, "at": 6, "in": 2, "version": 2, "key": 0.7, "length": 0.5, "tags": 3})
    if kind == "cut":
        return {"cut": rng.randint(1, 30)}
    if kind == "more":
        return {"more": "00" * rng.randint(1, 5)}
    if kind == "version":
        return {"version": draw.mostly(rng.randint(-1, 20), -32768, 32767, 99)}
    if kind == "key":
        # Those that clients may not ask for, that are gone, and that never were.
        return {"key": rng.choice((4, 5, 6, 7, 52, 53, 59, 62, 63, 67, 93, 96, 500, -1, 32767))}
    if kind == "length":
        return {"length": draw.mostly(-1, -4)}
    if kind == "tags":
        # What stands at the end of a flexible request is how many tagged fields it has.
        return {
            "cut": 1,
            "more": rng.choice(["0163020102", "016300", "0200000100", "02630064027f7f", "016305", "0501"]),
        }
    return {kind: [[rng.randrange(80), rng.choice(_OTHERS)] for _ in range(draw.mostly(1, 2))]}
