"""What tools see: DescribeGroups, ConsumerGroupDescribe, ListGroups."""

from ottla.kernel.error import ErrorCode
from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.list_groups import ListGroupsRequest
from tests.group.client import Classic, Consumer, commit_request, settled, stable_group
from tests.group.host import Host


def listed(host: Host, states: list[str] | None = None, types: list[str] | None = None) -> dict[str, tuple[str, str]]:
    answer = host.call(ListGroupsRequest(states_filter=states or [], types_filter=types or []), 5)
    return {group.group_id: (group.group_state, group.group_type) for group in answer.groups}


def full_host() -> Host:
    host = Host()
    stable_group(host, 1, group_id="classic")
    settled(host, "a", "b")
    host.call(commit_request("simple", {"orders": {0: 1}}), 8)
    return host


def test_groups_are_listed_with_their_state_and_type_and_filtered_without_regard_to_case() -> None:
    host = full_host()
    everything = {"classic": ("Stable", "classic"), "g": ("Stable", "consumer"), "simple": ("Empty", "classic")}
    assert listed(host) == everything
    assert set(listed(host, states=["STABLE"])) == {"classic", "g"}
    assert set(listed(host, types=["Consumer"])) == {"g"}
    assert set(listed(host, states=[" empty "], types=["classic"])) == {"simple"}
    assert listed(host, types=["nothing"]) == {}
    assert {group.protocol_type for group in host.call(ListGroupsRequest(), 0).groups} == {"consumer", ""}


def test_a_classic_group_is_described_with_members_and_what_they_have() -> None:
    host = Host()
    (member,) = stable_group(host, 1, client_id="billing")
    (group,) = host.call(DescribeGroupsRequest(groups=["g"]), 5).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (described,) = group.members
    assert (described.member_id, described.client_id, described.client_host) == (
        member.member_id,
        "billing",
        "/127.0.0.1",
    )
    assert described.member_metadata and described.member_assignment
    Classic(host).join()
    (group,) = host.call(DescribeGroupsRequest(groups=["g"]), 5).groups
    assert group.group_state == "PreparingRebalance" and group.protocol_data == ""
    assert all(one.member_metadata == b"" for one in group.members)


def test_a_group_that_is_not_there_is_dead_and_from_version_6_an_error() -> None:
    host = full_host()
    for name in ("none", "g"):
        (old,) = host.call(DescribeGroupsRequest(groups=[name]), 5).groups
        assert (old.group_state, old.error_code) == ("Dead", ErrorCode.NONE)
        (new,) = host.call(DescribeGroupsRequest(groups=[name]), 6).groups
        assert (new.group_state, new.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
        assert name in new.error_message


def test_a_consumer_group_is_described_with_epochs_and_both_assignments() -> None:
    host = Host()
    first, _ = settled(host, "a", "b", topics=None, regex="orders")
    third = Consumer(host, "c", topics=["orders"], assignor="range")
    third.join()
    (group,) = host.call(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert (group.group_state, group.group_epoch, group.assignor_name) == ("Reconciling", 4, "range")
    assert group.assignment_epoch == 4
    members = {one.member_id: one for one in group.members}
    assert set(members) == {"a", "b", "c"}
    described = members["a"]
    assert (described.member_epoch, described.member_type) == (first.epoch, 1)
    assert (described.subscribed_topic_names, described.subscribed_topic_regex) == ([], "orders")
    (has,) = described.assignment.topic_partitions
    (shall,) = described.target_assignment.topic_partitions
    assert (has.topic_name, sorted(has.partitions)) == ("orders", first.partitions())
    assert len(shall.partitions) <= 2


def test_classic_members_of_a_consumer_group_are_told_from_the_others() -> None:
    host = Host()
    stable_group(host, 1)
    Consumer(host, "new").join()
    (group,) = host.call(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert sorted(one.member_type for one in group.members) == [0, 1]


def test_describing_what_is_no_consumer_group_is_an_error() -> None:
    host = full_host()
    answer = host.call(ConsumerGroupDescribeRequest(group_ids=["none", "classic", ""]), 1)
    assert [group.error_code for group in answer.groups] == [
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_GROUP_ID,
    ]
