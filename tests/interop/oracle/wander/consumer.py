"""Histories of consumer groups (KIP-848): members beat with what they own, topics come, grow and go, and members of
the classic protocol are among them.
"""

from typing import Any

from tests.interop.oracle.wander.classic import GROUP, begin, commit, describe, fetch, forget, join, leave, sync
from tests.interop.oracle.wander.classic import beat as classic_beat
from tests.interop.oracle.wander.family import Draw
from tests.interop.oracle.wander.history import Values, ref

_INSTANCES = {2: "i2", 3: "i3"}
_WEIGHTS = {
    "hello": 3.0,
    "beat": 12,
    "bye": 1.5,
    "commit": 2,
    "fetch": 1.5,
    "describe": 2.5,
    "forget": 0.5,
    "topic": 0.8,
}


def consumer(draw: Draw) -> None:
    begin(draw)
    members = list(range(draw.rng.randint(1, 4)))
    if draw.maybe(0.5):
        members = [each + 1 for each in members if each < 3]
    while len(draw.steps) < draw.length:
        _STEPS[draw.pick(_WEIGHTS)](draw, draw.rng.choice(members))


def mixed(draw: Draw) -> None:
    """Members of both protocols in one group: it is converted up and down while it lives."""
    begin(draw)
    draw.readable = True
    classic = {"join": 6.0, "sync": 5, "beat": 4, "leave": 1}
    steps = {"join": join, "sync": sync, "beat": classic_beat, "leave": leave}
    while len(draw.steps) < draw.length:
        # Members 0 and 1 speak the classic protocol, 4 and 5 the new one.
        if draw.maybe(0.5):
            steps[draw.pick(classic)](draw, draw.rng.choice([0, 1]))
        else:
            _STEPS[draw.pick(_WEIGHTS)](draw, draw.rng.choice([4, 5]))


def _ask(draw: Draw, who: int, epoch: Any, **values: Any) -> None:
    # No member comes with two instance ids: Apache keeps the first one as well, for good.
    fixed = _INSTANCES.get(who)
    another = "nobody" if fixed else f"~member-{(who + 1) % 4}"
    draw.ask(
        "ConsumerGroupHeartbeat",
        on=who,
        keep={
            f"m{who}.id": ["member_id"],
            f"m{who}.generation": ["member_epoch"],
            f"m{who}.owns": ["assignment.topic_partitions"],
        },
        group_id=draw.mostly(GROUP, "~other", "", odds=0.99),
        member_id=draw.mostly(f"~member-{who}", another, "nobody", "", odds=0.98),
        member_epoch=epoch,
        instance_id=draw.mostly(fixed, None, fixed or "i2", odds=0.97) if fixed or draw.maybe(0.1) else None,
        **values,
    )


def hello(draw: Draw, who: int) -> None:
    values: Values = {
        "rebalance_timeout_ms": draw.mostly(300_000, -1, 0, odds=0.97),
        "topic_partitions": draw.mostly(
            [], None, [{"topic_id": ref("t0.id", {"$bytes": "01" * 16}), "partitions": [0]}], odds=0.95
        ),
        "server_assignor": draw.mostly(draw.assignor, None, "none", odds=0.9),
        "rack_id": draw.mostly(None, "r1", "", odds=0.9),
        "subscribed_topic_names": names(draw),
    }
    _ask(draw, who, 0, **values)


def names(draw: Draw) -> Any:
    """One topic that is there, at most: between topics Apache chooses by the order of their random ids."""
    return draw.mostly(["~t0"], ["~t0", "~none"], ["~none"], ["~t0", "~t0"], odds=0.6)


def beat(draw: Draw, who: int) -> None:
    rng = draw.rng
    epoch = draw.mostly(
        ref(f"m{who}.generation", 0), ref(f"m{who}.generation", 0, -1), ref(f"m{who}.generation", 0, 1), odds=0.93
    )
    values: Values = {}
    if draw.maybe(0.6):
        # What it owns: mostly what it was given last.
        values["topic_partitions"] = draw.mostly(ref(f"m{who}.owns", []), [], _owned(draw), odds=0.8)
        values["rebalance_timeout_ms"] = 300_000
    if draw.maybe(0.15):
        values["subscribed_topic_names"] = names(draw)
    if draw.maybe(0.05):
        values["server_assignor"] = draw.mostly(draw.assignor, "none")
    if draw.maybe(0.05):
        values["rack_id"] = rng.choice(["r1", "r2"])
    _ask(draw, who, epoch, **values)


def _owned(draw: Draw) -> Any:
    return [{"topic_id": ref("t0.id", {"$bytes": "01" * 16}), "partitions": draw.rng.choice([[0], [1], [0, 1], [7]])}]


def bye(draw: Draw, who: int) -> None:
    _ask(draw, who, draw.mostly(-1, -2, -3, odds=0.7))


def topic(draw: Draw, _: int) -> None:
    name = draw.mostly("t0", "t1")
    kind = draw.pick({"delete": 1, "make": 2, "grow": 1.5})
    if kind == "delete":
        draw.ask("DeleteTopics", 6, topics=[{"name": f"~{name}"}], timeout_ms=5000)
    elif kind == "make":
        draw.topic(name, draw.rng.randint(1, 4))
    else:
        grown = {"name": f"~{name}", "count": draw.rng.randint(2, 5), "assignments": None}
        draw.ask("CreatePartitions", topics=[grown], timeout_ms=5000)


_STEPS = {
    "hello": hello,
    "beat": beat,
    "bye": bye,
    "commit": commit,
    "fetch": fetch,
    "describe": describe,
    "forget": forget,
    "topic": topic,
}
