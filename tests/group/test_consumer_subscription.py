"""What members of consumer groups subscribe to: topics that come, grow and go, and regular expressions."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.group.records.encode import member_entry, regex_entry
from ottla.group.selection import Selected
from ottla.group.state.consumer import ConsumerState, Resolved
from ottla.kernel.error import ErrorCode
from tests.group.client import Consumer, rounds, settled
from tests.group.host import Host


def test_a_topic_that_grows_is_shared_out_anew() -> None:
    host = Host()
    first, second = settled(host, "a", "b")
    host.topics.grow("orders", 6)
    host.change_topics(changed=["orders"])
    rounds([first, second])
    assert sorted(first.partitions() + second.partitions()) == [0, 1, 2, 3, 4, 5]
    assert len(first.partitions()) == 3


def test_a_topic_that_is_made_after_its_subscribers_reaches_them() -> None:
    host = Host()
    (member,) = settled(host, "a", topics=["later"])
    assert member.owned == {}
    host.topics.create("later", 2)
    host.change_topics(created=["later"])
    rounds([member])
    assert member.partitions("later") == [0, 1]


@pytest.mark.parametrize("written", [{"topics": ["later", "none"]}, {"topics": None, "regex": "later"}])
def test_subscriptions_that_are_written_differently_are_dealt_in_turn(written: dict[str, Any]) -> None:
    """To the same topic. Those that are written the same are dealt in runs. Both as in Apache Kafka."""
    for other, expected in ({"topics": ["later"]}, [[0, 1], [2, 3]]), (written, [[0, 2], [1, 3]]):
        host = Host()
        first, second = Consumer(host, "a", topics=["later"]), Consumer(host, "b", **other)
        first.join()
        second.join()
        host.topics.create("later", 4)
        host.change_topics(created=["later"])
        host.pass_ms(10_001)
        rounds([second, first])
        assert [first.partitions("later"), second.partitions("later")] == expected


def test_a_deleted_topic_is_taken_away() -> None:
    host = Host()
    (member,) = settled(host, "a", topics=["orders", "clicks"])
    topic_id = host.topics.topic_id("orders")
    assert topic_id is not None
    host.topics.delete("orders")
    host.change_topics(deleted=[("orders", topic_id)])
    rounds([member])
    assert list(member.owned) == [host.topics.topic_id("clicks")]
    assert host.group().state is ConsumerState.STABLE


def test_a_member_that_unsubscribes_gives_up_at_once_and_others_take_over() -> None:
    host = Host()
    first, second = settled(host, "a", "b")
    second.topics = ["clicks"]
    second.beat()
    assert second.partitions("orders") == []
    rounds([first, second])
    assert first.partitions() == [0, 1, 2, 3] and second.partitions("clicks") == [0, 1]


def test_a_regular_expression_means_the_topics_that_it_matches() -> None:
    host = Host()
    host.topics.create("orders-eu", 2)
    (member,) = settled(host, "a", topics=None, regex="orders.*")
    assert {host.topics.topic_name(topic_id) for topic_id in member.owned} == {"orders", "orders-eu"}


def test_a_regular_expression_means_no_topic_that_the_client_may_not_describe() -> None:
    host = Host()
    host.may_describe = lambda topic: topic != "orders-secret"
    host.topics.create("orders-secret", 2)
    (member,) = settled(host, "a", topics=None, regex="orders.*")
    assert {host.topics.topic_name(topic_id) for topic_id in member.owned} == {"orders"}


def test_topics_selected_before_the_request_count_if_they_are_of_its_expression_and_of_the_same_metadata() -> None:
    def owned(regex: str, version_behind: int) -> set[str | None]:
        host = Host()
        host.selected = Selected(regex, host.topics.version - version_behind, ("clicks",))
        (member,) = settled(host, "a", topics=None, regex="orders.*")
        return {host.topics.topic_name(topic_id) for topic_id in member.owned}

    assert owned("orders.*", 0) == {"clicks"}
    assert owned("orders.*", 1) == owned("order.*", 0) == {"orders"}


def test_a_new_topic_that_an_expression_matches_is_found_after_ten_seconds() -> None:
    host = Host()
    (member,) = settled(host, "a", topics=None, regex="orders.*")
    host.topics.create("orders-eu", 2)
    host.change_topics(created=["orders-eu"])
    host.pass_ms(10_000)
    rounds([member], 2)
    assert member.partitions("orders-eu") == [0, 1]


def test_an_expression_that_the_last_member_drops_is_forgotten() -> None:
    host = Host()
    (member,) = settled(host, "a", topics=None, regex="orders.*")
    member.regex, member.topics = "", ["clicks"]
    member.beat()
    assert host.group().resolved == {}
    rounds([member])
    assert member.partitions("clicks") == [0, 1] and member.partitions("orders") == []
    other = Consumer(host, "b", topics=None, regex="cl.*")
    other.join()
    assert list(host.group().resolved) == ["cl.*"]
    other.leave()
    assert host.group().resolved == {} and host.replayed_group().resolved == {}


@pytest.mark.parametrize(("regex", "clicks"), [("cl.*", [1]), ("", [])])
def test_a_member_that_changes_its_expression_alone_gets_what_it_now_means(regex: str, clicks: list[int]) -> None:
    """Nothing has to be resolved: another member has the new expression, or there is none."""
    host = Host()
    first = Consumer(host, "a", topics=None, regex="orders.*")
    second = Consumer(host, "b", topics=None, regex="cl.*")
    first.join()
    second.join()
    rounds([first, second])
    assert first.partitions("orders") == [0, 1, 2, 3] and second.partitions("clicks") == [0, 1]
    first.regex = regex
    first.beat()
    rounds([first, second])
    assert first.partitions("orders") == [] and len(first.partitions("clicks")) == len(clicks)
    assert len(first.partitions("clicks")) + len(second.partitions("clicks")) == 2


def test_an_expression_that_is_none_is_refused() -> None:
    host = Host()
    answer = Consumer(host, "a", topics=None, regex="(?=x)").join()
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_message.startswith("SubscribedTopicRegex `(?=x)` is not a valid regular expression: ")
    assert host.group() is None


def test_a_heartbeat_resolves_its_own_expression_and_one_of_the_others() -> None:
    """Each takes the time of all topics, and a client may bring as many as it has members."""
    host = Host()
    members = [Consumer(host, name, topics=None, regex=f"orders|{name}.*") for name in "abcd"]
    for member in members:
        member.join()
    host.topics.create("a-new", 1)
    host.change_topics(created=["a-new"])
    host.pass_ms(10_001)

    def fresh() -> set[str]:
        resolved = host.group().resolved
        return {regex for regex, known in resolved.items() if known.version == host.topics.version}

    members[2].beat(full=False)
    assert fresh() == {"orders|c.*", "orders|a.*"}
    members[2].beat(full=False)
    assert len(fresh()) == 3
    members[2].beat(full=False)
    assert len(fresh()) == 4 and host.group().resolved["orders|a.*"].topics == ("a-new", "orders")


def test_an_expression_that_another_coordinator_left_unresolved_is_resolved_by_its_members_heartbeat() -> None:
    """Apache Kafka's coordinators write the member first, and the topics that its expression matches later."""
    host = Host()
    (member,) = settled(host, "a", topics=["clicks"])
    key, value = member_entry("g", replace(host.group().members["a"], topics=(), regex="orders.*"))
    host.coordinator.replay(key, value, offset=len(host.log))
    member.topics, member.regex = None, None
    rounds([member])
    assert member.partitions("orders") == [0, 1, 2, 3] and member.partitions("clicks") == []
    assert host.group().resolved["orders.*"].topics == ("orders",)


def test_an_expression_of_another_member_that_cannot_be_evaluated_matches_nothing_and_harms_nobody() -> None:
    """Apache Kafka's engine takes some that ours does not; only the member that brings one can be told."""
    host = Host()
    first, _ = settled(host, "a", "b", topics=None, regex="orders.*")
    key, value = member_entry("g", replace(host.group().members["b"], regex="(?=x)"))
    host.coordinator.replay(key, value, offset=len(host.log))
    key, value = regex_entry("g", "(?=x)", Resolved(("clicks",), 0, host.now_ms))
    host.coordinator.replay(key, value, offset=len(host.log))
    host.topics.create("orders-eu", 1)
    host.change_topics(created=["orders-eu"])
    host.pass_ms(10_001)
    for _ in range(3):
        assert first.beat(full=False).error_code == ErrorCode.NONE
    assert first.partitions("orders-eu") == [0]
    assert host.group().resolved["(?=x)"].topics == ()
