"""Streams groups (KIP-1071): joining, tasks that go from one to another, topologies, and what a member is told."""

from collections import Counter
from dataclasses import replace as change
from typing import Any

import pytest

from ottla.group.event import SettingsChanged
from ottla.group.setting import GroupOverride
from ottla.group.state.streams import StreamsState, TaskState
from ottla.group.topology.configuration import Status
from ottla.kernel.error import ErrorCode
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.streams_group_heartbeat import Topology
from tests.group.client import Classic, commit_request, fetched
from tests.group.host import Host
from tests.group.streams import (
    AT_ONCE,
    QUICK,
    REBALANCE_MS,
    Streamer,
    counter,
    described,
    make_missing,
    reader,
    rounds,
    settled,
    word_count,
)


def keep_alive(host: Host, members: list[Streamer], duration_ms: int) -> None:
    for _ in range(duration_ms // 10_000):
        host.pass_ms(10_000)
        for member in members:
            member.beat()


# -- joining and leaving


def test_the_first_member_gets_every_task() -> None:
    host = Host(AT_ONCE)
    one = Streamer(host, "one")
    answer = one.join()
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (2, 5_000)
    assert one.active == {"0": (0, 1, 2, 3)}
    assert one.statuses == []
    assert host.group().state is StreamsState.STABLE


def test_an_application_gathers_before_its_first_assignment() -> None:
    host = Host()
    one, two = Streamer(host, "one"), Streamer(host, "two")
    one.join()
    two.join()
    assert one.codes == [Status.ASSIGNMENT_DELAYED] and not one.active
    host.pass_ms(3_000)
    group = host.group()
    assert group.assignment_epoch == group.epoch
    one.beat()
    two.beat()
    assert len(one.active["0"]) == len(two.active["0"]) == 2
    assert one.statuses == []


def test_a_gathering_is_not_prolonged_by_who_comes_later() -> None:
    host = Host()
    Streamer(host, "one").join()
    host.pass_ms(2_000)
    Streamer(host, "two").join()
    host.pass_ms(1_000)
    assert host.group().assignment_epoch == host.group().epoch


def test_a_member_that_leaves_frees_its_tasks() -> None:
    host = Host(AT_ONCE)
    one, two = settled(host, "one", "two")
    answer = two.leave()
    assert (answer.member_id, answer.member_epoch, answer.status) == ("two", -1, [])
    rounds([one])
    assert one.active == {"0": (0, 1, 2, 3)}


def test_a_silent_member_is_fenced_and_its_tasks_are_free() -> None:
    host = Host(AT_ONCE)
    one, two = settled(host, "one", "two")
    keep_alive(host, [one], 50_000)
    assert set(host.group().members) == {"one"}
    rounds([one])
    assert one.active == {"0": (0, 1, 2, 3)}
    assert two.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_to_leave_leaves_an_empty_group() -> None:
    host = Host(AT_ONCE)
    (one,) = settled(host, "one")
    one.leave()
    group = host.group()
    assert group.state is StreamsState.EMPTY and group.topology is not None
    assert one.leave().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_takes_no_more_members_than_it_may() -> None:
    host = Host(change(AT_ONCE, group_streams_max_size=1))
    settled(host, "one")
    assert Streamer(host, "two").join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize(
    "wrong",
    [
        {"member_id": " "},
        {"group_id": ""},
        {"rack_id": ""},
        {"instance_id": "static"},
        {"task_offsets": []},
        {"rebalance_timeout_ms": -1},
        {"active_tasks": None},
        {"topology": None},
        {"member_epoch": -3, "topology": None},
        {"member_epoch": -2, "topology": None},
        {"member_epoch": 1},
        {"topology": Topology(subtopologies=[reader(source_topic_regex=["a.*"])])},
        {"topology": Topology(subtopologies=[reader()] * 5001)},
        {"topology": Topology(subtopologies=[reader(repartition_sink_topics=["t"] * 10_000)])},
    ],
)
def test_a_request_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    host = Host(AT_ONCE)
    one = Streamer(host, "one")
    assert one.send(one.request(**wrong)).error_code == ErrorCode.INVALID_REQUEST
    assert host.log == []


def test_a_group_that_is_not_there_and_one_of_another_kind_have_no_members() -> None:
    host = Host(AT_ONCE)
    one = Streamer(host, "one", epoch=3)
    assert one.beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert one.leave().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert described(host).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_wrong_epoch_is_fenced() -> None:
    host = Host(AT_ONCE)
    (one,) = settled(host, "one")
    one.epoch += 1
    assert one.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH
    one.epoch = 1
    assert one.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_whose_answer_was_lost_comes_with_the_epoch_before() -> None:
    host = Host(QUICK)
    one, two = settled(host, "one", "two")
    epoch, active = one.epoch, one.active
    two.leave()
    one.beat()
    assert one.epoch > epoch
    one.epoch, one.active = epoch, active
    assert one.beat().error_code == ErrorCode.NONE
    # It owns more than it was ever given: that is no lost answer.
    one.epoch, one.active = host.group().members["one"].previous_epoch, {"0": (0, 1, 2, 3), "1": (0,)}
    assert one.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH


# -- tasks go from one to another


def test_a_task_is_given_up_before_it_is_given_to_somebody_else() -> None:
    host = Host(QUICK)
    (one,) = settled(host, "one")
    two = Streamer(host, "two")
    two.join()
    assert host.group().members["two"].state is TaskState.UNRELEASED_TASKS and not two.active
    before = dict(one.active)
    one.send(one.request())
    assert len(one.active["0"]) == 2
    two.beat()
    assert not two.active, "the first may still work on them"
    one.active = {"0": tuple(one.active["0"])}
    one.beat()
    two.beat()
    assert sorted((*one.active["0"], *two.active["0"])) == list(before["0"])
    assert host.group().state is StreamsState.STABLE


def test_a_member_that_does_not_give_up_its_tasks_in_time_is_fenced() -> None:
    host = Host(QUICK)
    (one,) = settled(host, "one")
    owned = dict(one.active)
    two = Streamer(host, "two")
    two.join()
    for _ in range(REBALANCE_MS // 10_000 + 1):
        one.active = owned
        one.beat()
        two.beat()
        host.pass_ms(10_000)
    assert set(host.group().members) == {"two"}


def test_a_task_that_stays_keeps_the_epoch_since_when_it_is_the_members() -> None:
    host = Host(QUICK)
    (one,) = settled(host, "one")
    since = host.group().members["one"].epoch_of("0", 0)
    two = Streamer(host, "two")
    two.join()
    rounds([one, two])
    kept, given = one.active["0"][0], two.active["0"][0]
    assert host.group().members["one"].epoch_of("0", kept) == since
    assert host.group().members["two"].epoch_of("0", given) > since


def test_assignments_have_an_interval() -> None:
    host = Host(AT_ONCE)
    one = Streamer(host, "one")
    one.join()
    two = Streamer(host, "two")
    two.join()
    assert two.codes == [Status.ASSIGNMENT_DELAYED]
    host.pass_ms(1_000)
    two.beat()
    assert two.statuses == []


def test_standby_tasks_are_in_other_processes() -> None:
    host = Host(change(QUICK, group_streams_num_standby_replicas=1))
    topology = Topology(subtopologies=[counter()])
    members = [
        Streamer(host, name, topology, process_id=process) for name, process in (("a1", "a"), ("a2", "a"), ("b1", "b"))
    ]
    for member in members:
        member.join()
        make_missing(host, member.missing)
    rounds(members, 8)
    assert host.group().state is StreamsState.STABLE
    active = {(member.process_id, part) for member in members for part in member.active.get("0", ())}
    standby = {(member.process_id, part) for member in members for part in member.standby.get("0", ())}
    assert len(active) == len(standby) == 4 and not active & standby
    assert {part for _, part in standby} == {0, 1, 2, 3}
    held: dict[Any, Counter[str]] = {}
    for one in host.group().members.values():
        for task in one.held():
            held.setdefault(task, Counter())[one.process_id] += 1
    assert host.group().processes == held


def test_a_changed_number_of_standbys_is_a_new_assignment() -> None:
    host = Host(QUICK)
    one, two = settled(host, "one", "two", topology=Topology(subtopologies=[counter()]))
    assert not one.standby and not two.standby
    host.send(SettingsChanged(QUICK, {"g": GroupOverride(streams_num_standby_replicas=1)}))
    rounds([one, two], 8)
    assert len(one.standby["0"]) == len(two.standby["0"]) == 2
    host.send(SettingsChanged(QUICK, {}))
    rounds([one, two], 8)
    assert not one.standby and not two.standby


# -- what a member is told


def test_a_member_hears_where_everything_is_worked_on() -> None:
    host = Host(QUICK)
    members = settled(host, "one", "two", endpoint=("h", 1))
    members[1].endpoint = ("h", 2)
    members[1].join()
    rounds(members, 8)
    one, two = members
    assert one.hosts == two.hosts
    shares = [one.hosts["h", port]["orders"] for port in (1, 2)]
    assert sorted(index for share in shares for index in share) == [0, 1, 2, 3]
    answer = one.beat()
    assert answer.partitions_by_user_endpoint is None, "it has heard of the latest change"


def test_one_member_ends_the_application() -> None:
    host = Host(QUICK)
    one, two = settled(host, "one", "two")
    two.send(two.request(shutdown_application=True))
    assert two.codes == [Status.SHUTDOWN_APPLICATION]
    one.beat()
    assert one.codes == [Status.SHUTDOWN_APPLICATION] and "member two " in one.statuses[0][1]
    one.leave()
    two.leave()
    again = Streamer(host, "three")
    again.join()
    assert again.statuses == []


def test_the_first_member_that_wanted_the_end_is_named() -> None:
    host = Host(QUICK)
    one, two, three = settled(host, "one", "two", "three")
    for each in (two, one):
        each.send(each.request(shutdown_application=True))
    three.beat()
    assert three.codes == [Status.SHUTDOWN_APPLICATION] and "member two " in three.statuses[0][1]


def test_a_description_has_topology_members_and_both_assignments() -> None:
    host = Host(QUICK)
    one, two = settled(host, "one", "two", topology=word_count())
    group = described(host)
    assert (group.group_state, group.error_code, group.group_epoch) == ("Stable", 0, host.group().epoch)
    splits, counts = group.topology.subtopologies
    assert (splits.source_topics, splits.repartition_sink_topics) == (["orders"], ["app-words-repartition"])
    assert [(topic.name, topic.partitions) for topic in counts.state_changelog_topics] == [("app-counts-changelog", 4)]
    assert {member.member_id for member in group.members} == {"one", "two"}
    for member in group.members:
        assert member.assignment == member.target_assignment and member.assignment.active_tasks
        assert member.process_id == member.member_id and member.topology_epoch == 0
    assert one.epoch == two.epoch


# -- restarts


def test_a_new_leader_knows_everything_and_the_members_go_on() -> None:
    host = Host(QUICK)
    one, two = settled(host, "one", "two", topology=word_count())
    before = (dict(one.active), dict(two.active), host.group().epoch)
    host.restart()
    rounds([one, two])
    assert (one.active, two.active, host.group().epoch) == before


def test_a_revocation_that_was_under_way_ends_after_a_restart() -> None:
    host = Host(QUICK)
    (one,) = settled(host, "one")
    owned = dict(one.active)
    two = Streamer(host, "two")
    two.join()
    one.beat()
    assert host.group().members["one"].state is TaskState.UNREVOKED_TASKS
    host.restart()
    for _ in range(REBALANCE_MS // 10_000 + 1):
        one.active = owned
        one.beat()
        two.beat()
        host.pass_ms(10_000)
    assert set(host.group().members) == {"two"}


# -- offsets and other requests


def test_tasks_are_told_again_to_who_did_not_hear_of_them() -> None:
    host = Host(QUICK)
    one, two = settled(host, "one", "two")
    two.leave()
    host.ask(one.request(), 0)
    assert len(one.active["0"]) == 2, "its answer was lost"
    one.beat()
    assert one.active == {"0": (0, 1, 2, 3)}
    answer = one.beat()
    assert answer.active_tasks is None, "it has said that it knows"


def test_a_member_commits_for_its_tasks_in_the_epoch_in_which_it_got_them() -> None:
    host = Host(QUICK)
    (one,) = settled(host, "one")
    since = one.epoch
    two = Streamer(host, "two")
    two.join()
    rounds([one, two])
    kept, lost = one.active["0"][0], two.active["0"][0]

    def commits(partition: int, epoch: int, topic: str = "orders", version: int = 9) -> int:
        answer = host.call(commit_request("g", {topic: {partition: 5}}, epoch, "one"), version)
        return int(answer.topics[0].partitions[0].error_code)

    assert commits(kept, one.epoch) == ErrorCode.NONE
    assert commits(kept, since) == ErrorCode.NONE
    assert commits(lost, since) == ErrorCode.STALE_MEMBER_EPOCH
    assert commits(0, since, "clicks") == ErrorCode.STALE_MEMBER_EPOCH
    assert commits(kept, one.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commits(kept, one.epoch, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert fetched(host, "g", {"orders": [kept]}, member_id="one", member_epoch=one.epoch) == {
        ("orders", kept): (5, ErrorCode.NONE)
    }


def test_offsets_of_what_an_application_reads_do_not_expire_while_it_runs() -> None:
    settings = change(QUICK, offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000)
    host = Host(settings)
    (one,) = settled(host, "one")
    request = commit_request("g", {"orders": {0: 5}, "clicks": {0: 6}}, one.epoch, "one")
    host.call(request, 9)
    keep_alive(host, [one], 90_000)
    asked = {"orders": [0], "clicks": [0]}
    assert {offset for offset, _ in fetched(host, "g", asked).values()} == {5, -1}
    one.leave()
    host.pass_ms(90_000)
    assert host.group() is None, "its last offset is gone"
    assert host.replayed_group() is None


def test_a_group_is_deleted_when_it_is_empty() -> None:
    host = Host(QUICK)
    (one,) = settled(host, "one")

    def delete() -> int:
        return int(host.call(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code)

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    one.leave()
    assert delete() == ErrorCode.NONE
    assert host.group() is None and host.replayed_group() is None
    (one,) = settled(host, "one", topology=Topology(epoch=0, subtopologies=[reader(topics=["clicks"])]))
    assert one.active == {"0": (0, 1)}


def test_a_gathering_ends_with_the_group() -> None:
    host = Host()
    one = Streamer(host, "one")
    one.join()
    one.leave()
    host.call(DeleteGroupsRequest(groups_names=["g"]), 2)
    host.pass_ms(10_000)
    assert host.group() is None


def test_an_empty_streams_group_makes_place_for_a_classic_one_and_the_other_way_round() -> None:
    host = Host(QUICK)
    (one,) = settled(host, "one")
    consumer = Classic(host)
    assert consumer.join().joined().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    one.leave()
    consumer.join()
    host.pass_ms(3_000)
    assert consumer.joined().error_code == ErrorCode.NONE
    assert one.join().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    consumer.leave()
    host.restart()
    assert one.join().error_code == ErrorCode.NONE
    assert host.group().state is StreamsState.STABLE


@pytest.mark.parametrize("filters", [["notready"], ["NotReady"], ["not_ready"]])
def test_a_group_that_waits_for_its_topics_is_listed_by_its_state(filters: list[str]) -> None:
    host = Host(QUICK)
    Streamer(host, "one", word_count()).join()
    listed = host.call(ListGroupsRequest(states_filter=filters, types_filter=["Streams"]), 5).groups
    assert [(group.group_id, group.group_type, group.group_state) for group in listed] == [("g", "streams", "NotReady")]
    assert listed[0].protocol_type == "streams"


def test_a_member_leaves_no_group_of_another_kind() -> None:
    host = Host(QUICK)
    consumer = Classic(host)
    consumer.join()
    host.pass_ms(3_000)
    assert consumer.joined().error_code == ErrorCode.NONE
    before = len(host.log)
    one = Streamer(host, "one", epoch=3)
    said = one.leave()
    assert (said.error_code, said.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a streams group.")
    said = one.leave(shutdown_application=True)
    assert said.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert len(host.log) == before


def test_one_who_leaves_may_stop_the_application() -> None:
    host = Host(QUICK)
    one, two, three = settled(host, "one", "two", "three")
    assert one.leave().error_code == ErrorCode.NONE
    two.beat()
    assert Status.SHUTDOWN_APPLICATION not in two.codes
    two.leave(shutdown_application=True)
    three.beat()
    assert Status.SHUTDOWN_APPLICATION in three.codes


def test_one_who_is_no_member_stops_no_application() -> None:
    host = Host(QUICK)
    one, _ = settled(host, "one", "two")
    stranger = Streamer(host, "stranger", epoch=1)
    assert stranger.leave(shutdown_application=True).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    one.beat()
    assert Status.SHUTDOWN_APPLICATION not in one.codes
