"""What parts of a broker make of a change of the metadata: of its brokers, and of topics while a coordinator loads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.driver import Driver
from ottla.broker.coordinators.group_driver import GroupDriver
from ottla.broker.metadata.topic_view import TopicStep
from ottla.broker.partitions.fetcher import ReplicaFetcher
from ottla.broker.partitions.replication import Replication
from ottla.group.event import TopicsChanged
from ottla.kernel.ids import Uuid
from tests.broker.disk_scene import Scene

_OLD, _BRIEF = Uuid(b"1" * 16), Uuid(b"2" * 16)


def _broker(broker_id: int, epoch: int, *, active: bool = True) -> Any:
    return SimpleNamespace(broker_id=broker_id, epoch=epoch, is_active=active)


def test_in_sync_replicas_are_brokers_that_are_active_now() -> None:
    told: list[str] = []
    node: Any = object.__new__(Replication)
    node.brokers = known = {1: 10, 2: 20, 3: 30}
    node.fetchers = {2: SimpleNamespace(brokers_changed=lambda: told.append("fetcher"))}
    node._check_isr = lambda: told.append("check")
    image: Any = SimpleNamespace(brokers={1: _broker(1, 10), 2: _broker(2, 21), 3: _broker(3, 30, active=False)})
    node.follow_brokers(SimpleNamespace(brokers={}), image)
    assert node.brokers is known, "the partitions hold it"
    # Broker 2 has registered again, broker 3 is fenced; its replicas must not count on their word.
    assert (known, told) == ({1: 10, 2: 21}, ["fetcher", "check"])
    node.follow_brokers(image, SimpleNamespace(brokers=image.brokers))
    assert told == ["fetcher", "check"], "nothing has changed"


@pytest.mark.parametrize(
    ("peer", "now", "closes"), [(None, "there", False), ("there", "there", False), ("there", "elsewhere", True)]
)
def test_a_fetcher_leaves_its_leader_at_another_address(peer: str | None, now: str, closes: bool) -> None:
    told: list[str] = []
    fetcher: Any = SimpleNamespace(_peer=peer, _find_peer=lambda: now, _disconnect=lambda: told.append("disconnect"))
    ReplicaFetcher.brokers_changed(fetcher)
    assert told == (["disconnect"] if closes else [])


@pytest.mark.parametrize("missed", [False, True])
def test_a_group_coordinator_hears_of_topics_that_changed_while_it_was_loaded(
    missed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Any] = []
    driver: Any = object.__new__(GroupDriver)
    driver.step = steps.append
    driver.settings_changed = lambda: "settings"
    driver.when_writable = lambda do: do()
    driver.runtime = SimpleNamespace(image=SimpleNamespace(topics={"new": None, "grown": None}))
    offsets = SimpleNamespace(of_group=lambda group: {"old": {0: None}})
    driver.machine = SimpleNamespace(shard=SimpleNamespace(groups=["g", "h"], offsets=offsets))
    driver.partition = SimpleNamespace(log=SimpleNamespace(end_offset=40))
    monkeypatch.setattr(Driver, "begin", lambda self: steps.append("loaded"))
    driver.missed = []
    if missed:
        driver.missed += [
            TopicStep(["new", "brief"], ["grown"], [("old", _OLD)], []),
            TopicStep([], ["grown", "new"], [("brief", _BRIEF)], []),
        ]
    driver.begin()
    assert steps[:2] == ["settings", "loaded"]
    if not missed:
        assert len(steps) == 2
        return
    changed, deleted = steps[2:]
    assert isinstance(changed, TopicsChanged) and (list(changed.created), list(changed.changed)) == (
        [],
        ["new", "grown"],
    )
    assert list(deleted.deleted) == [("old", _OLD), ("brief", _BRIEF)]
    assert (deleted.groups, deleted.log_end) == (["g", "h"], 40)
    assert driver.missed == []


def test_an_error_of_one_subscriber_keeps_neither_the_others_nor_the_controller_from_a_change() -> None:
    scene = Scene()

    def failing(old: Any, new: Any) -> None:
        raise ValueError("a mistake")

    subscribers = scene.node.quorum.raft.images._subscribers
    subscribers.insert(0, failing)
    with pytest.raises(ValueError, match="a mistake"):
        scene.create()
    subscribers.remove(failing)
    scene.machine.settle()
    assert {scene.write(index, b"one") for index in range(4)} == {"NONE"}
