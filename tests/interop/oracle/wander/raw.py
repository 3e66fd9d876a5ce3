"""Histories of requests with any values in any field: nulls, negatives, empties, ids of nobody."""

from typing import Any

from ottla.wire.api import API
from ottla.wire.schema import WireField, fields
from tests.interop.oracle.wander.family import Draw
from tests.interop.oracle.wander.history import Values, ref

#: Those that change nothing which other histories share, and wait for nobody.
_APIS = (
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "Heartbeat",
    "LeaveGroup",
    "DescribeGroups",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
    "DescribeConfigs",
    "CreatePartitions",
    "DeleteGroups",
    "ElectLeaders",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "OffsetDelete",
    "DescribeClientQuotas",
    "DescribeUserScramCredentials",
    "DescribeProducers",
    "DescribeTransactions",
    "ConsumerGroupDescribe",
    "DescribeTopicPartitions",
    "ShareGroupDescribe",
    "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
)
_REQUESTS = {one.name: one.request for one in API.values()}
_NAMES = ("~t0", "~t0", "~t1", "~g", "~none", "", "~bad name")
#: Ids that neither server has given.
_PRODUCERS = (-1, -2, 888_888_888, 1 << 60)
_NUMBERS = (0, 0, 1, 1, 2, -1, -2, 7, 1 << 30)


#: Lists that mean everything when they are empty: what other histories have, too.
_EVERYTHING = {
    "Metadata": "topics",
    "DescribeTopicPartitions": "topics",
    "ElectLeaders": "topic_partitions",
    "DescribeUserScramCredentials": "users",
    "DescribeClientQuotas": "components",
}


def raw(draw: Draw) -> None:
    draw.topic("t0", 2)
    draw.ask("FindCoordinator", 6, key_type=0, coordinator_keys=["~g"])
    draw.ask("FindCoordinator", 6, key_type=1, coordinator_keys=["~g"])
    while len(draw.steps) < draw.length:
        api = draw.rng.choice(_APIS)
        version = draw.version(api, 4 if api == "Metadata" else 0)
        values = request(draw, api, version)
        if values is not None:
            draw.ask(api, version, on=draw.rng.randrange(2), **values)


def request(draw: Draw, api: str, version: int) -> Values | None:
    """Any values, but for what asks for everything, and for what Apache keeps in a map by a name that comes twice."""
    values = struct(draw, _REQUESTS[api], version)
    if api in _EVERYTHING and not values[_EVERYTHING[api]]:
        return None
    if "transactions" in values:
        values["transactions"] = values["transactions"][:1]
    if api == "Produce":
        values["topic_data"] = values["topic_data"][:1]
        for topic in values["topic_data"]:
            topic["partition_data"] = topic["partition_data"][:1]
    return values


def struct(draw: Draw, cls: type[Any], version: int) -> Values:
    made: Values = {}
    for field in fields(cls):
        if version not in field.versions or field.tag >= 0:
            continue
        # Produce without records is never answered by Apache.
        if field.is_nullable(version) and field.type != "Records" and draw.maybe(0.1):
            made[field.name] = None
        elif field.is_array:
            count = draw.mostly(1, 0, 2, odds=0.75)
            made[field.name] = [value(draw, field, version) for _ in range(count)]
        else:
            made[field.name] = value(draw, field, version)
    return made


def value(draw: Draw, field: WireField, version: int) -> Any:
    rng = draw.rng
    if field.struct is not None:
        return struct(draw, field.struct, version)
    if "timeout" in field.name or "wait" in field.name:
        return 100
    if "producer_id" in field.name:
        return rng.choice(_PRODUCERS)
    if field.name == "replica_id":
        return rng.choice((-1, -1, -2))
    if field.name == "isolation_level":
        return rng.choice((0, 1))
    match field.type:
        case "String":
            return rng.choice(_NAMES)
        case "Boolean":
            return draw.maybe() and field.name != "allow_auto_topic_creation"
        case "Float64":
            return rng.choice([0.0, 1.0, -1.0])
        case "Uuid":
            return draw.mostly(ref("t0.id", {"$bytes": "01" * 16}), {"$bytes": "00" * 16}, {"$bytes": "01" * 16})
        case "Bytes":
            return {"$bytes": rng.choice(["", "0001"])}
        case "Records":
            return {"$batch": {"count": rng.randint(1, 2)}}
    return rng.choice(_NUMBERS)
