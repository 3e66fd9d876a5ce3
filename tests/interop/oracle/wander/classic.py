"""Histories of classic groups: several members that join, sync, beat, commit and leave, rightly and wrongly.

No step waits for a session to end: what a join waits for is another member's step.
"""

from typing import Any

from tests.interop.oracle.wander.family import Draw
from tests.interop.oracle.wander.history import Values, ref

MEMBERS = 4
GROUP = "~g"
_STATIC = {2: "i2", 3: "i3"}


def classic(draw: Draw) -> None:
    begin(draw)
    draw.rng.shuffle(order := list(range(MEMBERS)))
    members = order[: draw.rng.randint(1, MEMBERS)]
    while len(draw.steps) < draw.length:
        STEPS[draw.pick(WEIGHTS)](draw, draw.rng.choice(members))


def begin(draw: Draw) -> None:
    draw.topic("t0", 2)
    draw.topic("t1", 1)
    draw.ask("FindCoordinator", 6, key_type=0, coordinator_keys=[GROUP])


def group(draw: Draw) -> str:
    return str(draw.mostly(GROUP, "~other", "", odds=0.98))


def member(draw: Draw, who: int) -> Any:
    return draw.mostly(ref(f"m{who}.id", ""), "", "nobody", ref("m0.id", ""), odds=0.95)


def generation(draw: Draw, who: int) -> Any:
    return draw.mostly(
        ref(f"m{who}.generation", -1),
        ref(f"m{who}.generation", -1, -1),
        -1,
        ref(f"m{who}.generation", -1, 1),
        odds=0.93,
    )


def instance(draw: Draw, who: int) -> Any:
    return draw.mostly(_STATIC.get(who), "i2", "i9", None, odds=0.96)


def join(draw: Draw, who: int) -> None:
    rng = draw.rng
    names = (
        rng.sample(["range", "roundrobin", "sticky"], rng.randint(1, 3)) if draw.maybe(0.4) else ["range", "roundrobin"]
    )
    if draw.maybe(0.03):
        names = draw.mostly(["other"], [])
    protocols = [{"name": name, "metadata": subscription(draw)} for name in names]
    fine = [79, 27]
    draw.ask(
        "JoinGroup",
        draw.version("JoinGroup", 5 if who in _STATIC and draw.maybe(0.8) else 0),
        on=who,
        keep={
            f"m{who}.id": ["member_id", *fine],
            f"m{who}.generation": ["generation_id"],
            f"m{who}.protocol": ["protocol_name"],
        },
        group_id=group(draw),
        session_timeout_ms=draw.mostly(300_000, 1, 3_600_000, odds=0.98),
        rebalance_timeout_ms=300_000,
        member_id=member(draw, who),
        group_instance_id=instance(draw, who),
        protocol_type=draw.mostly("consumer", "connect", "", odds=0.98),
        protocols=protocols,
        reason=draw.mostly(None, "why", odds=0.7),
    )


def subscription(draw: Draw) -> Values:
    """What a consumer says when it joins: mostly a real subscription, else bytes that mean nothing."""
    if draw.readable:
        return {"$subscription": ["~t0"]}
    if draw.maybe(0.6):
        return {"$bytes": draw.mostly("0001", "", "00", "0003ffff")}
    return {"$subscription": draw.mostly(["~t0"], ["~t0", "~t1"], [], odds=0.6)}


def sync(draw: Draw, who: int) -> None:
    """The assignments of all: a leader's are used, a follower's are not looked at."""
    given = [
        {
            "member_id": ref(f"m{each}.id", f"m{each}"),
            "assignment": {"$assignment": {"~t0": [each]}} if draw.readable else {"$bytes": f"00{each:02x}"},
        }
        for each in range(MEMBERS)
    ]
    draw.ask(
        "SyncGroup",
        on=who,
        group_id=group(draw),
        generation_id=generation(draw, who),
        member_id=member(draw, who),
        group_instance_id=instance(draw, who),
        protocol_type=draw.mostly("consumer", "other", None, odds=0.96),
        protocol_name=draw.mostly(ref(f"m{who}.protocol", "range"), "other", None, odds=0.96),
        assignments=draw.mostly(given, [], given[:2], odds=0.85),
    )


def beat(draw: Draw, who: int) -> None:
    draw.ask(
        "Heartbeat",
        on=who,
        group_id=group(draw),
        generation_id=generation(draw, who),
        member_id=member(draw, who),
        group_instance_id=instance(draw, who),
    )


def leave(draw: Draw, who: int) -> None:
    version = draw.version("LeaveGroup")
    if version < 3:
        draw.ask("LeaveGroup", version, on=who, group_id=group(draw), member_id=member(draw, who))
        return
    many = [who] if draw.maybe(0.8) else draw.rng.sample(range(MEMBERS), 2)
    members = [
        {
            "member_id": draw.mostly(member(draw, each), "", odds=0.8),
            "group_instance_id": instance(draw, each),
            "reason": None,
        }
        for each in many
    ]
    draw.ask("LeaveGroup", version, on=who, group_id=group(draw), members=members)


def commit(draw: Draw, who: int) -> None:
    rng = draw.rng
    where = {
        "partition_index": draw.mostly(0, 1, 7, -1, odds=0.7),
        "committed_offset": draw.mostly(rng.randrange(50), -1, -5, 1 << 40),
        "committed_leader_epoch": draw.mostly(-1, 0, 5),
        "committed_metadata": draw.mostly("", "m", None, odds=0.6),
    }
    topics = [{**draw.of(draw.mostly("t0", "t1", "none", odds=0.7)), "partitions": [where]}]
    alone = draw.maybe(0.2)
    draw.ask(
        "OffsetCommit",
        on=who,
        group_id=group(draw),
        generation_id_or_member_epoch=-1 if alone else generation(draw, who),
        member_id="" if alone else member(draw, who),
        group_instance_id=None if alone else instance(draw, who),
        retention_time_ms=draw.mostly(-1, 1000),
        topics=topics,
    )


def fetch(draw: Draw, who: int) -> None:
    version = draw.version("OffsetFetch")
    topics: Any = [{**draw.of(name), "partition_indexes": [0, 1]} for name in draw.rng.sample(["t0", "t1", "none"], 2)]
    if version >= 2 and draw.maybe(0.4):
        topics = None
    if version < 8:
        draw.ask("OffsetFetch", version, on=who, group_id=group(draw), topics=topics)
        return
    said: Values = {"group_id": group(draw), "topics": topics}
    if version >= 9 and draw.maybe(0.3):
        said |= {"member_id": member(draw, who), "member_epoch": generation(draw, who)}
    groups = draw.mostly(
        [said],
        [said, {"group_id": "~other", "topics": None}],
        [said, {"group_id": "", "topics": topics}, {"group_id": "~none", "topics": []}],
        [said, said],
        [],
    )
    draw.ask("OffsetFetch", version, on=who, groups=groups, require_stable=draw.maybe(0.3))


def forget(draw: Draw, who: int) -> None:
    kind = draw.pick({"offsets": 2, "group": 1})
    if kind == "offsets":
        partitions = [{"partition_index": draw.mostly(0, 1, 7)}]
        topics = [{"name": draw.mostly("~t0", "~t1", "~none"), "partitions": partitions}]
        draw.ask("OffsetDelete", on=who, group_id=group(draw), topics=topics)
    else:
        draw.ask("DeleteGroups", on=who, groups_names=draw.mostly([GROUP], [GROUP, "~other", ""], [GROUP, GROUP]))


def describe(draw: Draw, who: int) -> None:
    kind = draw.pick({"describe": 3, "consumer": 0.5, "list": 1, "find": 0.5})
    if kind == "describe":
        draw.ask(
            "DescribeGroups",
            groups=draw.mostly([GROUP], [GROUP, "~other"], [""]),
            include_authorized_operations=draw.maybe(0.2),
        )
    elif kind == "consumer":
        groups = draw.mostly([GROUP], [GROUP, "~other"], [], ["", "~none"], [GROUP, GROUP])
        draw.ask("ConsumerGroupDescribe", group_ids=groups, include_authorized_operations=draw.maybe(0.2))
    elif kind == "list":
        states = [
            "Stable",
            "Empty",
            "stable",
            "PreparingRebalance",
            "CompletingRebalance",
            "Dead",
            "Assigning",
            "x",
            "",
        ]
        kinds = ["classic", "consumer", "Consumer", "share", "streams", "x", ""]
        draw.ask(
            "ListGroups",
            states_filter=draw.rng.sample(states, draw.rng.randint(0, 2)),
            types_filter=draw.rng.sample(kinds, draw.mostly(0, 1, 2, odds=0.5)),
        )
    elif kind == "find":
        draw.ask(
            "FindCoordinator",
            draw.version("FindCoordinator", 4),
            key_type=draw.mostly(0, 1, 2, 5),
            coordinator_keys=[GROUP, ""],
        )


WEIGHTS = {"join": 8.0, "sync": 8, "beat": 3, "leave": 1.2, "commit": 3, "fetch": 2, "forget": 0.6, "describe": 2.5}
STEPS = {
    "join": join,
    "sync": sync,
    "beat": beat,
    "leave": leave,
    "commit": commit,
    "fetch": fetch,
    "forget": forget,
    "describe": describe,
}
