"""Three replicas of everything on three brokers under one controller, with unmodified clients: by seeds."""

from __future__ import annotations

import pytest

from ottla.client.settings.consumer import ConsumerSettings
from ottla.client.settings.producer import ProducerSettings
from ottla.client.settings.share import ShareConsumerSettings
from ottla.settings.group.settings import GroupSettings
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.single_node import single_node
from ottla.settings.topic.settings import TopicSettings
from tests.world.dealt import consumer, hands, producer, reader, sharer, watcher
from tests.world.eos import SETTINGS
from tests.world.replicated import run_replicated


@pytest.mark.parametrize("seed", range(6))
def test_a_history_of_replicated_topics_keeps_every_promise(seed: int) -> None:
    history = run_replicated(seed)
    # asyncio takes other numbers of turns in Python 3.12: a seed has another history there.
    assert history.acknowledged > 100
    assert sum(history.faults.values()) > 10
    assert max(history.committed.ends.values()) > 50


def test_a_history_is_the_same_when_it_is_run_again() -> None:
    assert run_replicated(3).world.trace == run_replicated(3).world.trace


def test_a_seed_deals_settings_that_nodes_topics_and_clients_take() -> None:
    for seed in range(200):
        dealt = hands(seed, power=seed % 2 == 1)
        server = ServerSettings.parse(single_node("data", "127.0.0.1", 0, 0) | SETTINGS | dealt.nodes)
        assert server.log_flush_interval_messages == 1 or seed % 2 == 0
        for name, value in dealt.topics.items():
            TopicSettings.check(name, value)
        GroupSettings.check_together(dealt.group, server)
        own = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
        ProducerSettings.read({"bootstrap.servers": "127.0.0.1:1"} | producer(seed, "p"), {})
        for protocol in ("classic", "consumer"):
            ConsumerSettings.read(own | {"group.protocol": protocol} | consumer(seed, "c", protocol), {})
        ConsumerSettings.read(own | reader(seed, "r"), {})
        ConsumerSettings.read(own | watcher(seed, "w"), {})
        ShareConsumerSettings.read(own | sharer(seed, "s"), {})
