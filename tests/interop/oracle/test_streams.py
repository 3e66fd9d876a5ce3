"""Streams groups (KIP-1071): heartbeats, topologies, internal topics, tasks, and what other requests make of them."""

from time import monotonic
from typing import Any

from tests.interop.oracle.side import Oracle, Side
from tests.interop.oracle.test_group import find

_PATIENCE_S = 30
_LOADING = (14, 15, 16)
_DESCRIBED = 0


def reads(*topics: str, subtopology: str = "0", **more: Any) -> dict[str, Any]:
    return {"subtopology_id": subtopology, "source_topics": list(topics), **more}


def info(name: str, partitions: int = 0, **configs: str) -> dict[str, Any]:
    pairs = [{"key": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {"name": name, "partitions": partitions, "replication_factor": 0, "topic_configs": pairs}


def topology(*subtopologies: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
    return {"epoch": epoch, "subtopologies": list(subtopologies)}


def counts(topic: str) -> dict[str, Any]:
    """Words to a repartition topic, and a count of them with a changelog."""
    sink = f"{topic}-words-repartition"
    counted = {
        "subtopology_id": "1",
        "repartition_source_topics": [info(sink, cleanup_policy="delete", retention_ms="-1")],
        "state_changelog_topics": [info(f"{topic}-changelog", cleanup_policy="compact")],
    }
    return topology(reads(topic, repartition_sink_topics=[sink]), counted)


def tasks(**partitions: list[int]) -> list[dict[str, Any]]:
    """Tasks by subtopology, written `_0`."""
    return [{"subtopology_id": name[1:], "partitions": each} for name, each in partitions.items()]


def beat(side: Side, group: str, member: str, epoch: int, *, note: bool = True, **values: Any) -> Any:
    return side.ask(
        "StreamsGroupHeartbeat", 0, note=note, group_id=group, member_id=member, member_epoch=epoch, **values
    )


def join(side: Side, group: str, member: str, parts: dict[str, Any], *, note: bool = True, **values: Any) -> Any:
    joins: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "topology": parts,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": member,
        "client_tags": [],
        **values,
    }
    return beat(side, group, member, 0, note=note, **joins)


def owns(side: Side, group: str, member: str, epoch: int, active: list[Any], standby: Any = (), **more: Any) -> Any:
    return beat(
        side,
        group,
        member,
        epoch,
        active_tasks=active,
        standby_tasks=list(standby),
        warmup_tasks=[],
        **more,
    )


def describe(side: Side, *groups: str, **values: Any) -> Any:
    return side.ask("StreamsGroupDescribe", _DESCRIBED, group_ids=list(groups), **values)


def prepare(side: Side, group: str, **configs: int) -> None:
    """A group that is assigned at once, whose coordinator is there."""
    settings = {"streams_initial_rebalance_delay_ms": 0, "streams_assignment_interval_ms": 0, **configs}
    changes = [
        {"name": name.replace("_", "."), "config_operation": 0, "value": str(value)} for name, value in settings.items()
    ]
    resource = {"resource_type": 32, "resource_name": group, "configs": changes}
    side.ask("IncrementalAlterConfigs", 1, note=False, resources=[resource])
    side.settle()
    find(side, group)
    deadline = monotonic() + _PATIENCE_S
    while beat(side, group, "nobody", 1, note=False).error_code in _LOADING:
        assert monotonic() < deadline


def test_a_heartbeat_is_answered_or_refused(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name)
        prepare(side, name)
        plain = topology(reads(name))
        join(side, name, "", plain)
        join(side, "", "m", plain)
        join(side, name, "m", plain, rack_id=" ")
        join(side, name, "m", plain, instance_id="i")
        join(side, name, "m", plain, rebalance_timeout_ms=-1)
        join(side, name, "m", plain, active_tasks=None)
        join(side, name, "m", plain, standby_tasks=tasks(_0=[0]))
        join(side, name, "m", plain, warmup_tasks=tasks(_0=[0]))
        join(side, name, "m", plain, task_offsets=[])
        join(side, name, "m", plain, task_end_offsets=[])
        beat(side, name, "m", 0, rebalance_timeout_ms=1, active_tasks=[], standby_tasks=[], warmup_tasks=[])
        beat(side, name, "m", -3)
        beat(side, name, "m", -2)
        beat(side, name, "m", -1)
        beat(side, name, "m", 1)
        beat(side, name, "m", 1, topology=plain)
        beat(side, name, "m", 1, active_tasks=[])
        join(side, name, "m", plain)
        beat(side, name, "m", 2)
        beat(side, name, "m", 3)
        beat(side, name, "m", 1)
        beat(side, name, "other", 2)
        beat(side, name, "other", -1)
        owns(side, name, "m", 2, tasks(_0=[1]))
        owns(side, name, "m", 2, tasks(_1=[0]))
        join(side, name, "m", topology(reads(name, subtopology="1")))
        join(side, name, "m", topology(reads(name), epoch=1))
        join(side, name, "m", plain)
        beat(side, name, "m", -1)
        beat(side, name, "m", 2)
        for group in (name, "none", ""):
            describe(side, group)

    oracle.compare(script)


def test_tasks_go_from_one_member_to_another(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name, 4)
        prepare(side, name)
        plain = topology(reads(name))
        first = join(side, name, "one", plain)
        describe(side, name)
        every, half = tasks(_0=[0, 1, 2, 3]), tasks(_0=[0, 1])
        second = join(side, name, "two", plain)
        describe(side, name)
        owns(side, name, "one", first.member_epoch, every)
        owns(side, name, "one", first.member_epoch, every)
        owns(side, name, "two", second.member_epoch, [])
        describe(side, name)
        moved = owns(side, name, "one", first.member_epoch, half)
        owns(side, name, "two", second.member_epoch, [])
        describe(side, name, include_authorized_operations=True)
        owns(side, name, "one", moved.member_epoch, half)
        # The answer with the new epoch was lost: it comes with the one before.
        owns(side, name, "one", first.member_epoch, half)
        beat(side, name, "two", -1)
        back = owns(side, name, "one", moved.member_epoch, half)
        describe(side, name)
        owns(side, name, "one", back.member_epoch, every)

    oracle.compare(script)


def test_members_of_one_process_share_its_standby_tasks(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name, 2)
        side.create(f"{name}-changelog", 2, cleanup_policy="compact")
        prepare(side, name, streams_num_standby_replicas=1)
        plain = topology(reads(name, state_changelog_topics=[info(f"{name}-changelog")]))
        one = join(side, name, "one", plain)
        two = join(side, name, "two", plain)
        every = tasks(_0=[0, 1])
        owns(side, name, "one", one.member_epoch, every)
        given_up = owns(side, name, "one", one.member_epoch, tasks(_0=[0]))
        owns(side, name, "two", two.member_epoch, [])
        describe(side, name)
        owns(side, name, "one", given_up.member_epoch, tasks(_0=[0]), tasks(_0=[1]))
        owns(side, name, "two", two.member_epoch, tasks(_0=[1]), tasks(_0=[0]))
        beat(side, name, "two", -1)
        owns(side, name, "one", given_up.member_epoch, tasks(_0=[0]), tasks(_0=[1]))
        owns(side, name, "one", given_up.member_epoch, tasks(_0=[0]))
        describe(side, name)

    oracle.compare(script)


def test_internal_topics_are_made_with_their_configs(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name, 3)
        prepare(side, name)
        joined = join(side, name, "m", counts(name))
        describe(side, name)
        made = [f"{name}-words-repartition", f"{name}-changelog"]
        for topic in made:
            side.await_topic(topic, 3)
        side.settle()
        side.ask(
            "DescribeConfigs",
            4,
            resources=[
                {"resource_type": 2, "resource_name": topic, "configuration_keys": ["cleanup.policy", "retention.ms"]}
                for topic in made
            ],
        )
        beat(side, name, "m", joined.member_epoch)
        describe(side, name)

    oracle.compare(script)


def test_a_topology_that_does_not_fit_its_topics_waits(oracle: Oracle, name: str) -> None:
    other, late = f"{name}-other", f"{name}-late"

    def script(side: Side) -> None:
        side.create(name, 3)
        side.create(other, 2)
        for number, parts in enumerate(
            [
                topology(reads(name, late)),
                topology(
                    reads(name, other, copartition_groups=[{"source_topics": [0, 1], "repartition_source_topics": []}])
                ),
                topology(
                    reads(other, repartition_sink_topics=[f"{name}-r"]),
                    reads(
                        name,
                        subtopology="1",
                        repartition_source_topics=[info(f"{name}-r", 5)],
                        copartition_groups=[{"source_topics": [0], "repartition_source_topics": [0]}],
                    ),
                ),
                topology(
                    reads(name, repartition_sink_topics=[other]),
                    reads(subtopology="1", repartition_source_topics=[info(other)]),
                ),
            ]
        ):
            group = f"{name}-{number}"
            prepare(side, group)
            join(side, group, "m", parts)
            describe(side, group)
        side.create(late, 3)
        side.settle()
        beat(side, f"{name}-0", "m", 2)
        describe(side, f"{name}-0")

    oracle.compare(script)


def test_a_topology_that_cannot_be_is_refused(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name, 2)
        prepare(side, name)
        for parts in (
            topology(reads("__consumer_offsets")),
            topology(reads("no/topic", repartition_sink_topics=["/"])),
            topology(reads(name, state_changelog_topics=[info(f"{name}-c", 3)])),
            topology(reads(name, source_topic_regex=["a.*"])),
            topology(reads(name, repartition_source_topics=[info(f"{name}-never")])),
            topology(reads(repartition_source_topics=[info(f"{name}-r")], repartition_sink_topics=[f"{name}-r"])),
            topology(reads()),
        ):
            join(side, name, "m", parts)
        describe(side, name)

    oracle.compare(script)


def test_members_hear_of_endpoints_and_of_the_end(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name, 2)
        prepare(side, name)
        plain = topology(reads(name))
        first = join(side, name, "one", plain, user_endpoint={"host": "h", "port": 1}, endpoint_information_epoch=-1)
        # What the coordinator counts of a new group begins with its second heartbeat.
        owns(side, name, "one", first.member_epoch, tasks(_0=[0, 1]), endpoint_information_epoch=0)
        second = join(side, name, "two", plain, user_endpoint={"host": "h", "port": 2}, endpoint_information_epoch=-1)
        kept = owns(side, name, "one", first.member_epoch, tasks(_0=[0, 1]), endpoint_information_epoch=0)
        owns(
            side,
            name,
            "one",
            first.member_epoch,
            tasks(_0=[0]),
            endpoint_information_epoch=kept.endpoint_information_epoch,
        )
        told = owns(side, name, "two", second.member_epoch, [], endpoint_information_epoch=0)
        describe(side, name)
        epoch = told.endpoint_information_epoch
        beat(side, name, "two", second.member_epoch, endpoint_information_epoch=epoch, shutdown_application=True)
        beat(side, name, "two", second.member_epoch, endpoint_information_epoch=epoch)
        beat(side, name, "two", -1)

    oracle.compare(script)


def test_other_requests_know_streams_groups(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name)
        prepare(side, name)
        plain = topology(reads(name))
        epoch = join(side, name, "m", plain).member_epoch

        def commit(epoch: int, member: str = "m", version: int = 9, topic: str = name) -> None:
            partition = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
            side.ask(
                "OffsetCommit",
                version,
                group_id=name,
                generation_id_or_member_epoch=epoch,
                member_id=member,
                topics=[{"name": topic, "partitions": [partition]}],
            )

        def fetch(**member: Any) -> None:
            asked = {"group_id": name, "topics": [{"name": name, "partition_indexes": [0]}], **member}
            side.ask("OffsetFetch", 9, groups=[asked])

        def every_way() -> None:
            join_consumer(side, name)
            side.ask(
                "ShareGroupHeartbeat",
                1,
                group_id=name,
                member_id="s",
                member_epoch=0,
                subscribed_topic_names=[name],
            )
            side.ask("Heartbeat", 4, group_id=name, generation_id=1, member_id="c")
            side.ask("SyncGroup", 5, group_id=name, generation_id=1, member_id="c", protocol_type="", protocol_name="")
            side.ask("LeaveGroup", 5, group_id=name, members=[{"member_id": "c"}])
            side.ask("DescribeGroups", 6, groups=[name])
            side.ask("ConsumerGroupDescribe", 1, group_ids=[name])
            side.ask("ShareGroupDescribe", 1, group_ids=[name])
            side.ask("OffsetDelete", 0, group_id=name, topics=[{"name": name, "partitions": [{"partition_index": 0}]}])
            for states, types in (([], ["streams"]), (["stable"], ["streams"]), (["Empty"], ["Streams"])):
                listed = side.ask("ListGroups", 5, note=False, states_filter=states, types_filter=types)
                side.note("ListGroups", [str(group) for group in listed.groups if group.group_id == name])

        commit(epoch)
        commit(epoch + 1)
        commit(epoch, version=8)
        commit(epoch, "other")
        commit(-1, "")
        fetch()
        fetch(member_id="m", member_epoch=epoch)
        fetch(member_id="m", member_epoch=epoch - 1)
        fetch(member_id="other", member_epoch=epoch)
        every_way()
        side.ask(
            "JoinGroup",
            9,
            group_id=name,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"\0\1"}],
        )
        side.ask("DeleteGroups", 2, groups_names=[name])
        beat(side, name, "m", -1)
        every_way()
        commit(-1, "")
        describe(side, name)
        side.ask("DeleteGroups", 2, groups_names=[name])
        describe(side, name)

    oracle.compare(script)


def join_consumer(side: Side, group: str) -> Any:
    return side.ask(
        "ConsumerGroupHeartbeat",
        1,
        group_id=group,
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=5_000,
        subscribed_topic_names=[group],
        topic_partitions=[],
    )


def test_a_streams_group_and_groups_of_other_kinds_take_each_others_place(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name)
        plain = topology(reads(name))
        for kind in ("consumer", "share"):
            group = f"{name}-{kind}"
            prepare(side, group)
            if kind == "consumer":
                side.ask(
                    "ConsumerGroupHeartbeat",
                    1,
                    note=False,
                    group_id=group,
                    member_id="c",
                    member_epoch=0,
                    rebalance_timeout_ms=5_000,
                    subscribed_topic_names=[name],
                    topic_partitions=[],
                )
            else:
                values: dict[str, Any] = {
                    "group_id": group,
                    "member_id": "s",
                    "member_epoch": 0,
                    "subscribed_topic_names": [name],
                }
                side.ask("ShareGroupHeartbeat", 1, note=False, **values)
            join(side, group, "m", plain)
            beat(side, group, "m", 1)
            beat(side, group, "m", -1)
        # An empty classic group makes place, and so does an empty streams group for a classic one.
        group = f"{name}-classic"
        prepare(side, group)
        values = {
            "group_id": group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\1"}],
        }
        promised = side.ask("JoinGroup", 9, note=False, **values)
        joined = side.ask("JoinGroup", 9, note=False, member_id=promised.member_id, **values)
        join(side, group, "m", plain)
        side.ask("LeaveGroup", 5, note=False, group_id=group, members=[{"member_id": joined.member_id}])
        join(side, group, "m", plain)
        beat(side, group, "m", -1)
        again = side.ask("JoinGroup", 9, note=False, **values)
        side.note("JoinGroup", again.error_code)
        describe(side, group)

    oracle.compare(script)
