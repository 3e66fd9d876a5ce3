"""The life of a streams group, told to a coordinator: Apache's wrote `tests/golden/group/streams.log` of it once.

`record(directory)` tells it to Apache Kafka and gives the bytes of the offsets partition; `tell` tells it to whoever
answers heartbeats.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.interop.server import Server, apache

GROUP = "g"
#: Topics that are there before, with their partitions.
TOPICS = {"orders": 4, "clicks": 2, "g-r": 4, "g-c": 4}
#: The settings of the group.
CONFIGS = {
    "streams.initial.rebalance.delay.ms": "0",
    "streams.assignment.interval.ms": "0",
    "streams.num.standby.replicas": "1",
}
CLIENT_ID = "oracle"

#: Gives the answer to a heartbeat with these fields.
Beat = Callable[..., Any]


def tell(beat: Beat) -> None:
    """Two members come; tasks go from one to the other, active and standby; one leaves, a third comes."""
    first = _join(beat, "one", rack_id="r", client_tags=[{"key": "zone", "value": "z"}, {"key": "a", "value": "b"}])
    second = _join(beat, "two", user_endpoint={"host": "h", "port": 9092})
    epochs = {"one": first.member_epoch, "two": second.member_epoch}
    owned: dict[str, Any] = {"one": first, "two": second}
    for _ in range(6):
        for member in ("one", "two"):
            had = owned[member]
            answer = beat(
                member_id=member,
                member_epoch=epochs[member],
                active_tasks=_given(had.active_tasks),
                standby_tasks=_given(had.standby_tasks),
                warmup_tasks=[],
            )
            assert answer.error_code == 0, answer
            epochs[member] = answer.member_epoch
            if answer.active_tasks is not None:
                owned[member] = answer
    left = beat(member_id="two", member_epoch=-1)
    assert left.error_code == 0, left
    _join(beat, "three")


def _join(beat: Beat, member: str, **more: Any) -> Any:
    counts = {
        "subtopology_id": "1",
        "source_topics": ["clicks"],
        "repartition_source_topics": [_info("g-r", 4)],
        "state_changelog_topics": [_info("g-c", 0)],
        "copartition_groups": [],
    }
    splits = {
        "subtopology_id": "0",
        "source_topics": ["orders"],
        "repartition_sink_topics": ["g-r"],
        "copartition_groups": [{"source_topics": [0], "repartition_source_topics": []}],
    }
    values = {
        "rebalance_timeout_ms": 60_000,
        "topology": {"epoch": 3, "subtopologies": [splits, counts]},
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": f"process-{member}",
        "client_tags": [],
        **more,
    }
    answer = beat(member_id=member, member_epoch=0, **values)
    assert answer.error_code == 0, answer
    return answer


def _info(name: str, partitions: int) -> dict[str, Any]:
    configs = [{"key": "cleanup.policy", "value": "compact"}, {"key": "a", "value": "1"}]
    return {"name": name, "partitions": partitions, "replication_factor": 1, "topic_configs": configs}


def _given(tasks: Any) -> list[dict[str, Any]]:
    return [{"subtopology_id": each.subtopology_id, "partitions": list(each.partitions)} for each in tasks]


def record(directory: Path) -> bytes:
    """The bytes of the partition of `__consumer_offsets` that has the group."""
    # The oracle reads the interop suite's own settings when it is imported.
    from tests.interop.oracle.side import Side
    from tests.interop.oracle.test_group import find

    server = Server(apache(), directory, settings={"offsets.topic.num.partitions": "1"})
    server.start()
    try:
        side = Side(server)
        for name, partitions in TOPICS.items():
            side.create(name, partitions)
        changes = [{"name": name, "config_operation": 0, "value": value} for name, value in CONFIGS.items()]
        resource = {"resource_type": 32, "resource_name": GROUP, "configs": changes}
        side.ask("IncrementalAlterConfigs", 1, note=False, resources=[resource])
        side.settle()
        find(side, GROUP)
        tell(lambda **values: side.ask("StreamsGroupHeartbeat", 0, note=False, group_id=GROUP, **values))
        side.close()
    finally:
        server.stop()
    (segment,) = server.log_dir.glob("__consumer_offsets-0/*.log")
    return segment.read_bytes()
