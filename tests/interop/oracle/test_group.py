"""Groups: joins, syncs, heartbeats, commits and leaves, with wrong generations, members and groups."""

from typing import Any

import pytest

from tests.interop.oracle.side import Oracle, Side
from tests.interop.oracle.test_record import batch, data


def find(side: Side, group: str) -> None:
    """Wait until the group's coordinator is there. Not part of the transcript."""
    error = 15
    while error in (14, 15, 16):  # the internal topic is being made, and its partition loaded
        reply = side.ask("FindCoordinator", 4, note=False, coordinator_keys=[group])
        error = reply.coordinators[0].error_code
        if not error:
            error = side.ask("DescribeGroups", 5, note=False, groups=[group]).groups[0].error_code


def join(side: Side, group: str, member_id: str = "", version: int = 7, **values: Any) -> Any:
    options: dict[str, Any] = {
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\1"}],
        **values,
    }
    return side.ask("JoinGroup", version, group_id=group, member_id=member_id, **options)


def join_and_sync(side: Side, group: str) -> str:
    """A stable group of one; its member."""
    find(side, group)
    joined = join(side, group)
    if joined.error_code == 79:  # MEMBER_ID_REQUIRED
        joined = join(side, group, joined.member_id)
    mine: str = joined.member_id
    side.ask(
        "SyncGroup",
        3,
        group_id=group,
        generation_id=joined.generation_id,
        member_id=mine,
        assignments=[{"member_id": mine, "assignment": b"\0\1\2"}],
    )
    return mine


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_or_is_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        find(side, name)
        first = join(side, name, version=version)
        if first.error_code == 79:
            first = join(side, name, first.member_id, version)
        join(side, name, "nobody", version)
        join(side, "", version=version)
        join(side, name + "-short", version=version, session_timeout_ms=1)
        join(side, name + "-long", version=version, session_timeout_ms=3_600_000_0)
        join(side, name + "-none", version=version, protocols=[])
        join(side, name, first.member_id, version, protocol_type="other")
        join(side, name, first.member_id, version, protocols=[{"name": "other", "metadata": b""}])

    oracle.compare(script)


@pytest.mark.parametrize("version", [4, 5, 9])
def test_a_member_that_joins_again_is_answered(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        mine = join_and_sync(side, name)
        join(side, name, mine, version)  # stable, nothing changed: the leader may ask for a new round
        join(side, name, mine, version)  # not synced yet
        changed = [{"name": "range", "metadata": b"\0\2"}]
        join(side, name, mine, version, protocols=changed)
        joined = join(side, name, mine, version, protocols=changed)
        side.ask(
            "SyncGroup",
            3,
            group_id=name,
            generation_id=joined.generation_id,
            member_id=mine,
            assignments=[{"member_id": mine, "assignment": b"\0\3"}],
        )
        side.ask("Heartbeat", 3, group_id=name, generation_id=joined.generation_id, member_id=mine)
        join(side, name, mine, version, protocols=changed)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(6))
def test_a_member_syncs_or_is_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        mine = join_and_sync(side, name)

        def sync(generation: int, member_id: str, group: str = name, **values: Any) -> None:
            side.ask("SyncGroup", version, group_id=group, generation_id=generation, member_id=member_id, **values)

        sync(1, mine)
        sync(7, mine)
        sync(1, "nobody")
        sync(1, mine, name + "-missing")
        sync(1, mine, "")
        if version >= 5:
            sync(1, mine, protocol_type="consumer", protocol_name="range")
            sync(1, mine, protocol_type="other", protocol_name="range")
            sync(1, mine, protocol_type="consumer", protocol_name="other")

    oracle.compare(script)


@pytest.mark.parametrize("version", range(5))
def test_a_heartbeat_is_taken_or_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        mine = join_and_sync(side, name)
        for group, generation, member_id in (
            (name, 1, mine),
            (name, 0, mine),
            (name, 2, mine),
            (name, 1, "nobody"),
            (name + "-missing", 1, mine),
            ("", 1, mine),
        ):
            side.ask("Heartbeat", version, group_id=group, generation_id=generation, member_id=member_id)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves_or_is_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        mine = join_and_sync(side, name)

        def leave(group: str, member_id: str) -> None:
            who: dict[str, Any] = {"members": [{"member_id": member_id}]} if version >= 3 else {"member_id": member_id}
            side.ask("LeaveGroup", version, group_id=group, **who)

        leave(name, "nobody")
        leave(name + "-missing", mine)
        leave("", mine)
        leave(name, mine)
        leave(name, mine)
        side.ask("DescribeGroups", 4, groups=[name])

    oracle.compare(script)


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_or_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        topic_id = side.create(name, 2)
        mine = join_and_sync(side, name)

        def commit(
            offset: int,
            group: str = name,
            generation: int = 1,
            member_id: str = mine,
            topic: str = name,
            partition: int = 0,
            metadata: str | None = "",
        ) -> None:
            where = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
            of: dict[str, Any] = {"name": topic}
            if version >= 10:
                of = {"topic_id": topic_id if topic == name else b"\1" * 16}
            topics = [{**of, "partitions": [where]}]
            side.ask(
                "OffsetCommit",
                version,
                group_id=group,
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                topics=topics,
            )

        commit(5)
        commit(6, metadata="where I was")
        commit(7, metadata=None)
        commit(7, metadata="x" * 5000)
        commit(-1)
        commit(8, generation=9)
        commit(8, generation=-1)
        commit(8, member_id="nobody")
        commit(8, generation=-1, member_id="")
        commit(8, group=name + "-simple", generation=-1, member_id="")
        commit(8, group=name + "-missing")
        commit(8, group="", generation=-1, member_id="")
        commit(8, topic=name + "-missing")
        commit(8, partition=9)
        if version >= 9:
            commit(8, group=name + "-missing", generation=5)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(1, 11))
def test_committed_offsets_are_fetched_or_not_there(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        topic_id = side.create(name, 2)
        find(side, name)
        where = {"partition_index": 0, "committed_offset": 42, "committed_metadata": "m", "committed_leader_epoch": 0}
        side.ask("OffsetCommit", 8, group_id=name, topics=[{"name": name, "partitions": [where]}])

        def fetch(group: str, topic: str | None, partitions: list[int], **more: Any) -> None:
            of: dict[str, Any] = {"name": topic}
            if version >= 10:
                of = {"topic_id": topic_id if topic == name else b"\1" * 16}
            topics = None if topic is None else [{**of, "partition_indexes": partitions}]
            if version >= 8:
                reply = side.ask("OffsetFetch", version, groups=[{"group_id": group, "topics": topics, **more}])
            else:
                reply = side.ask("OffsetFetch", version, group_id=group, topics=topics)
            assert reply

        fetch(name, name, [0, 1])
        fetch(name, name, [9])
        fetch(name, name + "-missing", [0])
        fetch(name + "-missing", name, [0])
        fetch("", name, [0])
        if version >= 2:
            fetch(name, None, [])
            fetch(name + "-missing", None, [])
        if version >= 9:
            fetch(name, name, [0], member_id="nobody", member_epoch=3)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        mine = join_and_sync(side, name)
        for group in (name, name + "-missing", ""):
            side.ask("DescribeGroups", version, groups=[group])
        side.ask("LeaveGroup", 2, group_id=name, member_id=mine)
        side.ask("DescribeGroups", version, groups=[name])

    oracle.compare(script)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        join_and_sync(side, name)

        def listed(**filters: Any) -> None:
            reply = side.ask("ListGroups", version, note=False, **filters)
            reply.groups = [one for one in reply.groups if one.group_id == name]
            side.note(f"ListGroups v{version} {filters}", reply, version)

        listed()
        if version >= 4:
            listed(states_filter=["Stable"])
            listed(states_filter=["stable", "Empty"])
            listed(states_filter=["NoSuchState"])
        if version >= 5:
            listed(types_filter=["classic"])
            listed(types_filter=["consumer"])
            listed(types_filter=["NoSuchType"])

    oracle.compare(script)


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_or_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        mine = join_and_sync(side, name)
        side.ask("DeleteGroups", version, groups_names=[name])
        side.ask("LeaveGroup", 2, group_id=name, member_id=mine)
        for group in (name, name, name + "-missing", ""):
            side.ask("DeleteGroups", version, groups_names=[group])

    oracle.compare(script)


def test_committed_offsets_are_deleted_or_refused(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name, 2)
        find(side, name)
        where = {"partition_index": 0, "committed_offset": 42, "committed_metadata": ""}
        side.ask("OffsetCommit", 7, group_id=name, topics=[{"name": name, "partitions": [where]}])
        for group, topic, partition in (
            (name, name, 1),
            (name, name, 0),
            (name, name, 9),
            (name, name + "-missing", 0),
            (name + "-missing", name, 0),
        ):
            topics = [{"name": topic, "partitions": [{"partition_index": partition}]}]
            side.ask("OffsetDelete", 0, group_id=group, topics=topics)
        twice = [{"partition_index": 0}, {"partition_index": 0}]
        side.ask("OffsetDelete", 0, group_id=name, topics=[{"name": name, "partitions": twice}])
        side.ask("OffsetFetch", 7, group_id=name, topics=None)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(2))
def test_a_member_of_the_new_protocol_beats_or_is_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        side.create(name, 2)
        side.settle()
        find(side, name)
        chosen = "member-of-the-oracle"

        def beat(member_id: str, epoch: int, group: str = name, **values: Any) -> Any:
            return side.ask(
                "ConsumerGroupHeartbeat", version, group_id=group, member_id=member_id, member_epoch=epoch, **values
            )

        hello: dict[str, Any] = {
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": [name],
            "topic_partitions": [],
        }
        beat("", 0, **hello)
        joined = beat(chosen, 0, **hello)
        mine = joined.member_id
        beat(mine, joined.member_epoch)
        beat(mine, joined.member_epoch + 5)
        beat("nobody", 3)
        beat(mine, -5)
        beat(mine, 0, group="")
        beat(chosen + "2", 0, rebalance_timeout_ms=30_000, topic_partitions=[])
        beat(chosen + "3", 0, **{**hello, "rebalance_timeout_ms": -1})
        beat(chosen + "4", 0, **{**hello, "server_assignor": "no-such-assignor"})
        beat(chosen + "5", 0, **{**hello, "rack_id": ""})
        beat(chosen + "6", 0, **{**hello, "instance_id": ""})
        if version:
            beat(chosen + "7", 0, **{**hello, "subscribed_topic_names": None, "subscribed_topic_regex": "["})
        beat(mine, -1)
        beat(mine, -1)
        beat("nobody", 1, group=name + "-missing")
        for described in range(2):
            for group in (name, name + "-missing"):
                side.ask("ConsumerGroupDescribe", described, group_ids=[group])

    oracle.compare(script)


def test_a_group_of_one_protocol_refuses_the_other(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name)
        side.settle()
        join_and_sync(side, name)
        side.ask("ConsumerGroupDescribe", 0, group_ids=[name])
        hello: dict[str, Any] = {
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": [name],
            "topic_partitions": [],
        }
        new = name + "-new"
        side.ask("ConsumerGroupHeartbeat", 1, group_id=new, member_id="member-1", member_epoch=0, **hello)
        side.ask("DescribeGroups", 5, groups=[new])
        side.ask("DeleteGroups", 2, groups_names=[new])
        join(side, new, protocol_type="connect")

    oracle.compare(script)


def test_a_client_may_not_write_the_groups_log(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        find(side, name)
        side.ask("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data("__consumer_offsets", batch()))

    oracle.compare(script)
