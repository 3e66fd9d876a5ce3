"""Groups whose members all subscribe to the same topics: the work of a heartbeat does not grow with their number."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.group.setting import CoordinatorSettings
from ottla.group.topic import names_of
from ottla.kernel.ids import Uuid
from tests.group.client import Consumer
from tests.group.host import Host, Topics
from tests.group.test_share_group import Sharer

_NAMES = [f"topic-{number:03d}" for number in range(60)]
_AT_ONCE = CoordinatorSettings(group_consumer_assignment_interval_ms=0, group_share_assignment_interval_ms=0)


class _Counted(Topics):
    """Topics that count how often a name is looked up."""

    looked = 0

    def topic_id(self, name: str) -> Uuid | None:
        self.looked += 1
        return super().topic_id(name)


def _group(share: bool, members: int) -> tuple[Host, _Counted]:
    topics = _Counted({"topic-000": 2, "topic-001": 1})
    host = Host(_AT_ONCE, topics)
    for number in range(members):
        assert not _join(host, share, f"m{number}", _NAMES).error_code
    return host, topics


def _join(host: Host, share: bool, member_id: str, names: list[str]) -> Any:
    if share:
        return Sharer(host, member_id, names).beat()
    return Consumer(host, member_id, topics=names).join()


@pytest.mark.parametrize("share", [False, True])
def test_a_join_looks_topics_up_as_often_in_a_large_group_as_in_a_small_one(share: bool) -> None:
    looked = []
    for members in (2, 20):
        host, topics = _group(share, members)
        topics.looked = 0
        assert not _join(host, share, "another", ["topic-000"]).error_code
        looked.append(topics.looked)
    assert looked[0] == looked[1]


@pytest.mark.parametrize("share", [False, True])
def test_only_topics_that_exist_are_looked_up(share: bool) -> None:
    looked = []
    for unknown in ([], [f"none-{number}" for number in range(300)]):
        topics = _Counted({"topic-000": 2})
        assert not _join(Host(_AT_ONCE, topics), share, "one", ["topic-000", *unknown]).error_code
        looked.append(topics.looked)
    assert looked[0] == looked[1]


@pytest.mark.parametrize("share", [False, True])
def test_a_subscription_is_stored_once_and_one_that_changes_is_another(share: bool) -> None:
    host, _ = _group(share, 3)
    assert not _join(host, share, "m1", ["topic-001", "topic-000"]).error_code
    for restarts in (False, True):
        if restarts:
            host.restart()
        group: Any = host.group()
        topics = {member_id: member.topics for member_id, member in group.members.items()}
        assert topics == {"m0": tuple(_NAMES), "m1": ("topic-000", "topic-001"), "m2": tuple(_NAMES)}
        assert topics["m0"] is topics["m2"]


class _Names(tuple[str, ...]):
    """A subscription that counts how often it is looked through."""

    looked = 0

    def __iter__(self) -> Any:
        type(self).looked += 1
        return super().__iter__()


def test_a_stored_subscription_is_looked_through_once() -> None:
    class Member:
        def __init__(self, topics: tuple[str, ...]) -> None:
            self.topics = topics

    shared = _Names(("a", "b"))
    members = [Member(shared), Member(("b", "c")), *(Member(shared) for _ in range(5))]
    assert list(names_of(members)) == ["a", "b", "c"] and _Names.looked == 1
