"""Histories of an administrator: topics, settings, quotas, credentials, metrics, and what is refused."""

from typing import Any

from tests.interop.oracle.wander.family import Draw
from tests.interop.oracle.wander.history import Values, ref

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
NAMES = ("t0", "t1", "t2")
_SETTINGS: dict[int, dict[str, list[Any]]] = {
    TOPIC: {
        "cleanup.policy": ["compact", "delete", "compact,delete", "delete,compact", "", "nothing", " compact", None],
        "compression.type": ["zstd", "producer", "uncompressed", "none", "GZIP", ""],
        "compression.gzip.level": ["1", "9", "-1", "0", "10"],
        "compression.lz4.level": ["1", "17", "18", "0"],
        "compression.zstd.level": ["-131072", "22", "23", "3"],
        "delete.retention.ms": ["0", "-1", "100"],
        "file.delete.delay.ms": ["0", "60000", "-1"],
        "flush.messages": ["1", "0", "9223372036854775807"],
        "flush.ms": ["0", "-1", "5"],
        "index.interval.bytes": ["0", "4096", "-1"],
        "max.compaction.lag.ms": ["1", "0", "1000"],
        "max.message.bytes": ["0", "-1", "2147483647", "2147483648", "1.5", "1000"],
        "message.timestamp.after.max.ms": ["0", "-1", "3600000"],
        "message.timestamp.before.max.ms": ["0", "-1", "3600000"],
        "message.timestamp.type": ["CreateTime", "LogAppendTime", "createtime"],
        "min.cleanable.dirty.ratio": ["0", "1", "1.01", "-0.1", "0.5f", "1e-1"],
        "min.compaction.lag.ms": ["0", "-1", "500", "5000"],
        "min.insync.replicas": ["0", "1", "2", "9"],
        "preallocate": ["true", "false", "TRUE", "yes", "1"],
        "retention.bytes": ["-1", "-2", "0", "1000"],
        "retention.ms": ["-1", "-2", "0", "604800000", "abc", " 5 ", "+5", "0x10", "5L", "1_000"],
        "segment.bytes": ["1048576", "1048575", "14", "2147483647"],
        "segment.index.bytes": ["4", "3", "10485760"],
        "segment.jitter.ms": ["0", "-1", "604800001"],
        "segment.ms": ["1", "0", "604800000"],
        "unclean.leader.election.enable": ["true", "false", ""],
        "leader.replication.throttled.replicas": ["*", "0:1", "", "0:1,1:1", "none", "0"],
        "remote.storage.enable": ["true", "false"],
        "local.retention.ms": ["-2", "-3", "5"],
        "message.format.version": ["3.0"],
        "no.such.setting": ["1"],
        "": ["1"],
    },
    GROUP: {
        "consumer.session.timeout.ms": ["45000", "1", "600000", "600001", "x"],
        "consumer.heartbeat.interval.ms": ["5000", "1", "15001", "500"],
        "share.session.timeout.ms": ["45000", "1", "50000"],
        "share.heartbeat.interval.ms": ["5000", "1", "15001"],
        "share.record.lock.duration.ms": ["15000", "1", "60000", "3600001"],
        "share.auto.offset.reset": [
            "earliest",
            "latest",
            "by_duration:PT1H",
            "by_duration:-PT1H",
            "by_duration:1h",
            "none",
        ],
        "share.isolation.level": ["read_committed", "READ_COMMITTED", "read_uncommitted", "x"],
        "share.delivery.count.limit": ["5", "1", "11", "2"],
        "share.partition.max.record.locks": ["100", "99", "10001"],
        "share.renew.acknowledge.enable": ["true", "false", "x"],
        "streams.num.standby.replicas": ["0", "2", "3", "-1"],
        "streams.session.timeout.ms": ["45000", "1"],
        "no.such.setting": ["1"],
    },
    METRICS: {
        "metrics": ["", "*", "org.apache.kafka.consumer.,org.apache.kafka.producer.", "a,b", None],
        "interval.ms": ["100", "99", "3600000", "3600001", "x"],
        "match": ["client_id=a.*", "client_id=[", "nothing=1", "client_id", "client_software_name=x,client_id=y", ""],
        "no.such.setting": ["1"],
    },
    BROKER: {
        "log.retention.ms": ["0", "-1", "5", "x"],
        "log.retention.bytes": ["-2", "5"],
        "message.max.bytes": ["-1", "0", "5"],
        "log.cleaner.threads": ["0", "1", "2", "3", "9"],
        "log.cleaner.dedupe.buffer.size": ["1", "134217728"],
        "num.io.threads": ["0", "1", "4", "8", "16", "17"],
        "num.network.threads": ["0", "2", "7"],
        "background.threads": ["0", "5", "21"],
        "max.connections": ["0", "-1", "100"],
        "max.connections.per.ip": ["-1", "0", "5"],
        "compression.type": ["x", "lz4", "producer"],
        "log.cleanup.policy": ["", "delete", "compact,delete"],
        "log.message.timestamp.type": ["x", "LogAppendTime"],
        "min.insync.replicas": ["0", "2"],
        "log.segment.bytes": ["1", "1048576"],
        "log.flush.interval.messages": ["0", "1"],
        "unclean.leader.election.enable": ["x", "true"],
        "log.index.interval.bytes": ["-1", "1"],
        "group.initial.rebalance.delay.ms": ["5"],
        "auto.create.topics.enable": ["true"],
        "producer.id.expiration.ms": ["0", "5"],
        "leader.replication.throttled.rate": ["0", "5"],
        "num.partitions": ["2"],
        "log.dirs": ["/x"],
        "no.such.setting": ["1"],
    },
}
_LISTS = {"cleanup.policy", "metrics", "match", "leader.replication.throttled.replicas", "log.cleanup.policy"}


def admin(draw: Draw) -> None:
    weights = {
        "create": 4.0,
        "delete": 1.5,
        "grow": 1.5,
        "alter": 8,
        "replace": 1.5,
        "configs": 4,
        "topics": 3,
        "quota": 3,
        "quotas": 2,
        "scram": 1.5,
        "users": 1,
        "acls": 0.7,
        "elect": 1,
        "reassign": 1,
        "feature": 0.7,
        "resources": 1,
        "cluster": 0.7,
        "dirs": 0.7,
        "quorum": 0.4,
        "token": 0.5,
    }
    while len(draw.steps) < draw.length:
        _STEPS[draw.pick(weights)](draw)


def name_of(draw: Draw) -> str:
    odd = ["", "~none", "~bad name", ".", "..", "~" + "x" * 250]
    return str(draw.mostly(f"~{draw.rng.choice(NAMES)}", *odd, odds=0.93))


def create(draw: Draw) -> None:
    rng = draw.rng
    made: list[Values] = []
    for name in rng.sample(NAMES, rng.randint(1, 2)):
        one: Values = {
            "name": draw.mostly(f"~{name}", name_of(draw), odds=0.9),
            "num_partitions": draw.mostly(rng.randint(1, 4), -1, 0, -2, odds=0.93),
            "replication_factor": draw.mostly(1, -1, 0, 2, -2, odds=0.93),
            "configs": [],
        }
        if draw.maybe(0.4):
            key = rng.choice(list(_SETTINGS[TOPIC]))
            one["configs"] = [{"name": key, "value": rng.choice(_SETTINGS[TOPIC][key])}]
        if draw.maybe(0.15):
            one |= {"num_partitions": draw.mostly(-1, 1), "replication_factor": draw.mostly(-1, 1)}
            one["assignments"] = [
                {"partition_index": number, "broker_ids": draw.mostly([1], [2], [], [1, 1], odds=0.8)}
                for number in draw.mostly([0, 1], [1], [0, 2], [0, 0], odds=0.7)
            ]
        made.append(one)
    if draw.maybe(0.05):
        made.append(made[0])
    kept = {f"{name}.id": ["topics.0.topic_id"] for name in NAMES if made[0]["name"] == f"~{name}"}
    draw.ask("CreateTopics", keep=kept, topics=made, timeout_ms=15_000, validate_only=draw.maybe(0.15))


def delete(draw: Draw) -> None:
    version = draw.version("DeleteTopics")
    names = [name_of(draw) for _ in range(draw.mostly(1, 2, 0, odds=0.8))]
    if draw.maybe(0.05) and names:
        names.append(names[0])
    names = [name for name in names if name != "__consumer_offsets"]
    if version < 6:
        draw.ask("DeleteTopics", version, topic_names=names, timeout_ms=5000)
        return
    topics: list[Values] = [{"name": name} for name in names]
    if draw.maybe(0.3):
        number = ref(f"{draw.rng.choice(NAMES)}.id", {"$bytes": "07" * 16})
        topics.append({"name": draw.mostly(None, "~t0", odds=0.9), "topic_id": number})
    draw.ask("DeleteTopics", version, topics=topics, timeout_ms=5000)


def grow(draw: Draw) -> None:
    assigned = draw.mostly(None, [{"broker_ids": [1]}], [{"broker_ids": [1]}, {"broker_ids": [2]}], [], odds=0.75)
    topic = {"name": name_of(draw), "count": draw.rng.choice([0, 1, 2, 3, 4, 5, -1]), "assignments": assigned}
    topics = [topic] * draw.mostly(1, 2, odds=0.96)
    draw.ask("CreatePartitions", topics=topics, timeout_ms=5000, validate_only=draw.maybe(0.15))


def resource(draw: Draw) -> tuple[int, str]:
    kind = draw.rng.choices([TOPIC, GROUP, METRICS, BROKER], [5, 2, 1, 2])[0]
    name = (
        name_of(draw).replace("__consumer_offsets", "~t0") if kind == TOPIC else draw.mostly("~r", "~s", "", odds=0.8)
    )
    if kind == BROKER:
        name = draw.mostly("", "1", "7", "x", odds=0.4)
    return kind, str(name)


def alter(draw: Draw) -> None:
    """Incremental changes. Those of brokers, which all histories share, are only tried."""
    rng = draw.rng
    kind, name = resource(draw)
    known = _SETTINGS[kind]
    configs: list[Values] = []
    for key in rng.sample(list(known), rng.choice([1, 1, 1, 2, 3])):
        operation = rng.choice([0, 1, 2, 3]) if key in _LISTS else draw.mostly(0, 1, 2, 3, odds=0.8)
        value = None if operation == 1 and draw.maybe(0.8) else rng.choice(known[key])
        configs.append({"name": key, "config_operation": operation, "value": value})
    if draw.maybe(0.03):
        configs.append(configs[0])
    resources: list[Values] = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    if draw.maybe(0.05):
        resources.append(draw.mostly(resources[0], {"resource_type": 99, "resource_name": "x", "configs": []}))
    draw.ask("IncrementalAlterConfigs", resources=resources, validate_only=kind == BROKER or draw.maybe(0.1))


def replace(draw: Draw) -> None:
    """AlterConfigs: all that is not named goes."""
    rng = draw.rng
    kind, name = resource(draw)
    known = _SETTINGS[kind]
    configs = [{"name": key, "value": rng.choice(known[key])} for key in rng.sample(list(known), rng.randint(0, 2))]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    draw.ask("AlterConfigs", resources=resources, validate_only=kind == BROKER or draw.maybe(0.2))


def configs(draw: Draw) -> None:
    rng = draw.rng
    kind, name = resource(draw)
    keys = None
    if kind == BROKER or draw.maybe(0.6):
        keys = rng.sample([key for key in _SETTINGS[kind] if key != "num.io.threads"], 3)
    asked = {"resource_type": draw.mostly(kind, 99, 0, odds=0.98), "resource_name": name, "configuration_keys": keys}
    told = draw.maybe(0.3)
    draw.ask("DescribeConfigs", resources=[asked], include_synonyms=draw.maybe(0.7), include_documentation=told)


def topics(draw: Draw) -> None:
    kind = draw.pick({"metadata": 3, "describe": 2})
    if kind == "describe":
        names = [{"name": name} for name in sorted({name_of(draw) or "~t0" for _ in range(2)})]
        cursor = draw.mostly(None, {"topic_name": "~t1", "partition_index": draw.mostly(0, 1, 9, -1)}, odds=0.7)
        limit = draw.mostly(2000, 1, 2, 0, -1, odds=0.7)
        draw.ask("DescribeTopicPartitions", topics=names, response_partition_limit=limit, cursor=cursor)
        return
    asked: list[Values] = [{"name": name_of(draw)} for _ in range(draw.rng.randint(0, 2))]
    # Older versions cannot say that no topic is to be made.
    version = draw.version("Metadata", 4)
    if version >= 12 and draw.maybe(0.3):
        asked.append({"name": None, "topic_id": ref(f"{draw.rng.choice(NAMES)}.id", {"$bytes": "09" * 16})})
    more: Values = {"include_topic_authorized_operations": draw.maybe(0.2), "allow_auto_topic_creation": False}
    draw.ask("Metadata", version, topics=asked, **more)


def entity(draw: Draw) -> list[Values]:
    kind = draw.rng.choice([["user"], ["client-id"], ["user", "client-id"], ["ip"], ["none"], ["user", "ip"], []])
    if draw.maybe(0.6):
        kind = draw.rng.choice([["user"], ["client-id"], ["user", "client-id"]])
    made: list[Values] = []
    for each in kind:
        name = draw.mostly("~u", "~v", "", odds=0.8)
        if each == "ip":
            name = draw.mostly("127.0.0.9", "1.2.3.4", "no address", "")
        made.append({"entity_type": each, "entity_name": name})
    return made


def quota(draw: Draw) -> None:
    rng = draw.rng
    keys = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"]
    ops = [
        {
            "key": draw.mostly(key, "connection_creation_rate", "nothing", odds=0.85),
            "value": draw.mostly(1e9, 0.0, -1.0, 0.5, 1e9 + 0.5, odds=0.7),
            "remove": draw.maybe(0.3),
        }
        for key in rng.sample(keys, rng.choice([1, 1, 2, 0]))
    ]
    entries = [{"entity": entity(draw), "ops": ops} for _ in range(draw.mostly(1, 2, odds=0.95))]
    draw.ask("AlterClientQuotas", entries=entries, validate_only=draw.maybe(0.15))


def quotas(draw: Draw) -> None:
    parts: list[Values] = []
    for each in draw.rng.choice([["user"], ["client-id"], ["user", "client-id"], ["ip"], ["none"], []]):
        match = draw.rng.choice([0, 0, 1, 2, 9])
        name = draw.mostly("~u", "~v", odds=0.8) if match == 0 else draw.mostly(None, "x", odds=0.95)
        parts.append({"entity_type": each, "match_type": match, "match": name})
    if not any(one["match_type"] == 0 for one in parts):
        parts.append({"entity_type": draw.mostly("user", "client-id"), "match_type": 0, "match": "~u"})
    draw.ask("DescribeClientQuotas", components=parts, strict=draw.maybe())


def scram(draw: Draw) -> None:
    rng = draw.rng
    upserts = [
        {
            "name": draw.mostly("~u", "~v", "", odds=0.9),
            "mechanism": draw.mostly(rng.choice([1, 2]), 0, 3, odds=0.9),
            "iterations": draw.mostly(4096, 4095, 16385, 0, odds=0.8),
            "salt": {"$bytes": "0102"},
            "salted_password": {"$bytes": "0304" * 16},
        }
        for _ in range(rng.choice([0, 1, 1, 2]))
    ]
    gone = [
        {"name": draw.mostly("~u", "~v", ""), "mechanism": draw.mostly(1, 2, 0)} for _ in range(rng.choice([0, 0, 1]))
    ]
    draw.ask("AlterUserScramCredentials", deletions=gone, upsertions=upserts)


def users(draw: Draw) -> None:
    names = [{"name": name} for name in draw.mostly(["~u"], ["~u", "~v"], ["~u", "~u"], ["", "~u"], odds=0.5)]
    draw.ask("DescribeUserScramCredentials", users=names)


def acls(draw: Draw) -> None:
    one: Values = {
        "resource_type": draw.mostly(2, 0, 1),
        "resource_name": "~t0",
        "principal": draw.mostly("User:a", "a"),
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    pattern = {"resource_pattern_type": draw.mostly(3, 0, 2)}
    kind = draw.pick({"create": 1, "delete": 1, "describe": 1})
    if kind == "create":
        draw.ask("CreateAcls", creations=[one | pattern])
        return
    asked = {f"{name}_filter": value for name, value in one.items() if name.startswith(("resource_n", "princ", "host"))}
    asked |= {
        "resource_type_filter": 2,
        "pattern_type_filter": draw.mostly(3, 1, 2),
        "operation": 3,
        "permission_type": 3,
    }
    if kind == "delete":
        draw.ask("DeleteAcls", filters=[asked])
    else:
        draw.ask("DescribeAcls", **asked)


def elect(draw: Draw) -> None:
    names = [name_of(draw) for _ in range(draw.mostly(1, 0, 2))]
    asked = [{"topic": name, "partitions": draw.mostly([0], [0, 1], [9], [], [-1], [0, 0])} for name in names]
    draw.ask("ElectLeaders", election_type=draw.mostly(0, 1, 7), topic_partitions=asked, timeout_ms=5000)


def reassign(draw: Draw) -> None:
    partitions = [
        {"partition_index": index, "replicas": draw.mostly([1], None, [2], [], [1, 1], [-1], [1, 2], odds=0.4)}
        for index in draw.mostly([0], [1], [9], [0, 1], [], [0, 0])
    ]
    asked = [{"name": name_of(draw), "partitions": partitions}]
    more: Values = {"allow_replication_factor_change": draw.maybe(0.8)}
    if draw.maybe(0.3):
        listed = draw.mostly(
            [{"name": "~t0", "partition_indexes": [0, 9]}], [], None, [{"name": "~none", "partition_indexes": []}]
        )
        draw.ask("ListPartitionReassignments", topics=listed, timeout_ms=5000)
    else:
        draw.ask("AlterPartitionReassignments", topics=asked, timeout_ms=5000, **more)


def feature(draw: Draw) -> None:
    names = ["metadata.version", "transaction.version", "group.version", "share.version", "kraft.version", "nothing"]
    names += ["streams.version", "eligible.leader.replicas.version", ""]
    updates = [
        {
            "feature": name,
            "max_version_level": draw.rng.choice([0, 1, 2, 7, 29, 99, -1]),
            "upgrade_type": draw.rng.choice([1, 2, 3, 0, 9]),
            "allow_downgrade": draw.maybe(),
        }
        for name in draw.rng.sample(names, draw.mostly(1, 0, 2))
    ]
    # Version 0 has no validate_only: it would change what all histories share.
    draw.ask(
        "UpdateFeatures",
        draw.version("UpdateFeatures", 1),
        timeout_ms=5000,
        feature_updates=updates,
        validate_only=True,
    )


def resources(draw: Draw) -> None:
    draw.ask("ListConfigResources", 1, resource_types=draw.mostly([99], [99, 2], [16, 98]))


def cluster(draw: Draw) -> None:
    kind = draw.mostly(1, 2, 0)
    draw.ask(
        "DescribeCluster",
        endpoint_type=kind,
        include_cluster_authorized_operations=draw.maybe(),
        include_fenced_brokers=draw.maybe(),
    )


def dirs(draw: Draw) -> None:
    topics = [{"topic": name_of(draw), "partitions": draw.mostly([0], [0, 1], [9])}]
    if draw.maybe(0.5):
        draw.ask("DescribeLogDirs", topics=topics)
        return
    moved = {"path": draw.mostly("/no/such/dir", "relative", ""), "topics": [{"name": "~t0", "partitions": [0, 9]}]}
    draw.ask("AlterReplicaLogDirs", dirs=[moved])


def quorum(draw: Draw) -> None:
    topics = [{"topic_name": draw.mostly("~none", "~t0"), "partitions": [{"partition_index": draw.mostly(0, 1)}]}]
    draw.ask("DescribeQuorum", topics=topics)


def token(draw: Draw) -> None:
    kind = draw.pick({"create": 1, "renew": 1, "expire": 1, "describe": 1})
    if kind == "create":
        draw.ask("CreateDelegationToken", renewers=[], max_lifetime_ms=-1)
    elif kind == "renew":
        draw.ask("RenewDelegationToken", hmac={"$bytes": "0102"}, renew_period_ms=5)
    elif kind == "expire":
        draw.ask("ExpireDelegationToken", hmac={"$bytes": "0102"}, expiry_time_period_ms=5)
    else:
        draw.ask("DescribeDelegationToken", owners=None)


_STEPS = {
    "create": create,
    "delete": delete,
    "grow": grow,
    "alter": alter,
    "replace": replace,
    "configs": configs,
    "topics": topics,
    "quota": quota,
    "quotas": quotas,
    "scram": scram,
    "users": users,
    "acls": acls,
    "elect": elect,
    "reassign": reassign,
    "feature": feature,
    "resources": resources,
    "cluster": cluster,
    "dirs": dirs,
    "quorum": quorum,
    "token": token,
}
