"""Histories of share groups (KIP-932): two members fetch, acknowledge in every way, and lose their sessions.

They begin when both have the partition and one record, the first, has been accepted: until then Apache takes its time.
"""

from typing import Any

from tests.interop.oracle.wander.family import Draw
from tests.interop.oracle.wander.history import Values, ref

_GROUP = "~g"
_MEMBERS = ("m", "n")
_WEIGHTS = {"put": 2.0, "fetch": 6, "acknowledge": 7, "beat": 1.5, "offsets": 1, "transaction": 0.3}


def share(draw: Draw) -> None:
    draw.topic("t0", 1)
    settings = {"share.auto.offset.reset": "earliest"}
    if draw.maybe(0.4):
        settings["share.delivery.count.limit"] = draw.rng.choice(["2", "3", "5"])
    configs = [{"name": name, "config_operation": 0, "value": value} for name, value in settings.items()]
    resource = {"resource_type": 32, "resource_name": _GROUP, "configs": configs}
    draw.ask("IncrementalAlterConfigs", 1, resources=[resource])
    put(draw, count=1)
    for member in _MEMBERS:
        draw.ask("share members are ready", 0, group=_GROUP, member=member, topic="~t0")
    put(draw)
    while len(draw.steps) < draw.length:
        _STEPS[draw.pick(_WEIGHTS)](draw)


def put(draw: Draw, count: int = 0) -> None:
    made = {"count": count or draw.rng.randint(1, 4), "codec": draw.mostly(0, 1)}
    asked = {**draw.of("t0"), "partition_data": [{"index": 0, "records": {"$batch": made}}]}
    draw.ask("Produce", 9, acks=-1, timeout_ms=5000, topic_data=[asked])


def _session(draw: Draw, member: str) -> Values:
    at = f"{member}.session"
    return {
        "group_id": draw.mostly(_GROUP, "~other", odds=0.99),
        "member_id": draw.mostly(member, "nobody", odds=0.99),
        "share_session_epoch": draw.mostly(ref(at, 0), ref(at, 0, 1), -1, 0, odds=0.95),
    }


def _kept(member: str, values: Values) -> dict[str, list[Any]]:
    """The session's next epoch."""
    epoch = values["share_session_epoch"]
    if isinstance(epoch, dict):
        return {f"{member}.session": ["=+1", 3, 6, 100, 121]} if "plus" not in epoch else {}
    return {f"{member}.session": ["=1" if epoch == 0 else "=0", 3, 6, 100, 121]}


def _said(draw: Draw) -> list[Values]:
    """What is said of some records: of one, of a few, of such that were never given out."""
    rng = draw.rng
    first = rng.randint(1, 12)
    batches: list[Values] = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        last = first + draw.mostly(0, 1, 2, 3, -1, odds=0.5)
        kinds = [draw.mostly(1, 2, 3, 4, 0, 9, odds=0.45)]
        if draw.maybe(0.15) and last > first:
            kinds = [rng.choice([1, 2, 3, 0]) for _ in range(last - first + 1)]
        batches.append({"first_offset": first, "last_offset": last, "acknowledge_types": kinds})
        first = max(first, last) + rng.choice([1, 1, 2])
    return batches


def fetch(draw: Draw) -> None:
    member = draw.rng.choice(_MEMBERS)
    values = _session(draw, member)
    partition: Values = {"partition_index": draw.mostly(0, 5, odds=0.98)}
    if draw.maybe(0.3) and isinstance(values["share_session_epoch"], dict):
        partition["acknowledgement_batches"] = _said(draw)
    topics = draw.mostly([{"topic_id": ref("t0.id", {"$bytes": "01" * 16}), "partitions": [partition]}], [], odds=0.8)
    draw.ask(
        "ShareFetch",
        on=_MEMBERS.index(member),
        keep=_kept(member, values),
        max_wait_ms=draw.mostly(0, 50),
        min_bytes=draw.mostly(1, 0),
        max_bytes=1 << 20,
        max_records=draw.mostly(500, 1, 2, 3, 0, odds=0.6),
        batch_size=draw.mostly(500, 1, 2, odds=0.7),
        share_acquire_mode=draw.mostly(0, 1),
        is_renew_ack=draw.mostly(False, True, odds=0.97),
        topics=topics,
        **values,
    )


def acknowledge(draw: Draw) -> None:
    member = draw.rng.choice(_MEMBERS)
    values = _session(draw, member)
    partition = {"partition_index": draw.mostly(0, 5, odds=0.98), "acknowledgement_batches": _said(draw)}
    topics = [{"topic_id": ref("t0.id", {"$bytes": "01" * 16}), "partitions": [partition]}]
    draw.ask(
        "ShareAcknowledge",
        on=_MEMBERS.index(member),
        keep=_kept(member, values),
        is_renew_ack=draw.mostly(False, True, odds=0.9),
        topics=topics,
        **values,
    )


def beat(draw: Draw) -> None:
    member = draw.rng.choice(_MEMBERS)
    at = f"{member}.epoch"
    draw.ask(
        "ShareGroupHeartbeat",
        on=_MEMBERS.index(member),
        keep={at: ["member_epoch"]},
        group_id=draw.mostly(_GROUP, "", "~other", odds=0.97),
        member_id=draw.mostly(member, "nobody", "", odds=0.97),
        member_epoch=draw.mostly(ref(at, 0), ref(at, 0, 1), ref(at, 0, -1), -2, odds=0.9),
        subscribed_topic_names=draw.mostly(None, ["~t0"], odds=0.8),
    )


def offsets(draw: Draw) -> None:
    kind = draw.pick({"describe": 2, "alter": 1, "delete": 0.5, "group": 0.5})
    if kind == "describe":
        if draw.maybe():
            draw.ask("ShareGroupDescribe", group_ids=draw.mostly([_GROUP], ["~none", ""]))
            return
        topics = draw.mostly(
            None,
            [{"topic_name": "~t0", "partitions": [0, 5]}],
            [],
            [{"topic_name": "~none", "partitions": [0]}],
            odds=0.3,
        )
        groups = [{"group_id": draw.mostly(_GROUP, "~none", ""), "topics": topics}]
        draw.ask("DescribeShareGroupOffsets", groups=groups)
    elif kind == "alter":
        partitions = [{"partition_index": draw.mostly(0, 5), "start_offset": draw.mostly(0, 3, -1)}]
        topic = draw.mostly("~t0", "~none", "")
        group = draw.mostly(_GROUP, "~idle", "")
        draw.ask("AlterShareGroupOffsets", group_id=group, topics=[{"topic_name": topic, "partitions": partitions}])
    elif kind == "delete":
        draw.ask("DeleteShareGroupOffsets", group_id=_GROUP, topics=[{"topic_name": draw.mostly("~t0", "~none")}])
    else:
        draw.ask("DeleteGroups", groups_names=[_GROUP])


def transaction(draw: Draw) -> None:
    """Requests of other kinds of groups to this one."""
    kind = draw.pick({"commit": 1, "join": 1, "describe": 1})
    if kind == "commit":
        topics = [{**draw.of("t0"), "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
        draw.ask("OffsetCommit", 9, group_id=_GROUP, generation_id_or_member_epoch=-1, topics=topics)
    elif kind == "join":
        protocols = [{"name": "range", "metadata": {"$subscription": ["~t0"]}}]
        draw.ask(
            "JoinGroup",
            on=7,
            group_id=_GROUP,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=protocols,
        )
    else:
        draw.ask("DescribeGroups", groups=[_GROUP])


_STEPS = {
    "put": put,
    "fetch": fetch,
    "acknowledge": acknowledge,
    "beat": beat,
    "offsets": offsets,
    "transaction": transaction,
}
