"""The content of DescribeConfigs: where each value comes from, what is secret, and what cannot be changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.broker.metadata.config_view import (
    Described,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from ottla.settings.server.settings import ServerSettings
from tests.controller.scene import SETTINGS

_TOPIC, _BROKER, _METRICS, _GROUP = 2, 4, 16, 32
#: Kafka's numbers of the sources.
OF_TOPIC, OF_BROKER, OF_CLUSTER, OF_FILE, DEFAULT, OF_METRICS, OF_GROUP = 1, 2, 3, 4, 5, 7, 8
_FILE = SETTINGS | {
    "log.retention.hours": "24",
    "ssl.keystore.password": "secret",
    "metrics.listener": "127.0.0.1:9404",
    "acme.plugin.token": "secret",
    "listener.name.plaintext.max.connections": "9",
}
_NODE = {"log.retention.ms": "1000", "leader.replication.throttled.rate": "700"}
_CLUSTER = {"log.retention.ms": "2000", "max.connections": "50", "acme.plugin.size": "3"}


class _Image:
    """The settings of resources: (kind, name) -> settings."""

    def __init__(self, **configs: Mapping[str, str]) -> None:
        self._configs = configs

    def config(self, kind: int, name: str) -> Mapping[str, str]:
        return self._configs.get(
            f"{ {_TOPIC: 'topic', _BROKER: 'broker', _METRICS: 'metrics', _GROUP: 'group'}[kind] }_{name}", {}
        )


def _server() -> ServerSettings:
    return ServerSettings.parse(_FILE).with_dynamic(_NODE, _CLUSTER)


def _by_name(found: list[Described]) -> dict[str, Described]:
    assert len({each.name for each in found}) == len(found)
    return {each.name: each for each in found}


def _synonyms(each: Described) -> list[tuple[str, str | None, int]]:
    return [(name, value, source) for name, value, source in each.synonyms]


def test_a_topics_own_value_wins_over_the_brokers() -> None:
    image: Any = _Image(topic_t={"retention.ms": "77", "cleanup.policy": "compact"})
    mine = _by_name(describe_topic(_server(), image, "t"))
    assert (mine["retention.ms"].value, mine["retention.ms"].source, mine["retention.ms"].read_only) == (
        "77",
        OF_TOPIC,
        False,
    )
    assert _synonyms(mine["retention.ms"])[:3] == [
        ("retention.ms", "77", OF_TOPIC),
        ("log.retention.ms", "1000", OF_BROKER),
        ("log.retention.ms", "2000", OF_CLUSTER),
    ]
    theirs = _by_name(describe_topic(_server(), image, "u"))
    assert (theirs["retention.ms"].value, theirs["retention.ms"].source) == ("1000", OF_BROKER)
    assert (theirs["cleanup.policy"].value, theirs["cleanup.policy"].source) == ("delete", DEFAULT)
    assert theirs["retention.ms"].documentation and not theirs["retention.ms"].sensitive
    # Both are longs, by Kafka's numbers.
    assert (theirs["retention.ms"].type, theirs["cleanup.policy"].type) == (5, 7)


def test_a_groups_own_value_wins_over_the_brokers() -> None:
    image: Any = _Image(group_g={"consumer.session.timeout.ms": "50000"})
    mine = _by_name(describe_group(_server(), image, "g"))["consumer.session.timeout.ms"]
    assert (mine.value, mine.source, mine.read_only) == ("50000", OF_GROUP, False)
    theirs = _by_name(describe_group(_server(), image, "h"))["consumer.session.timeout.ms"]
    assert (theirs.value, theirs.source) == ("45000", DEFAULT)


def test_a_broker_shows_all_of_its_settings() -> None:
    found = _by_name(describe_broker(_server(), _Image(), "1"))  # type: ignore[arg-type]
    shown = {name: (each.value, each.source, each.read_only, each.sensitive) for name, each in found.items()}
    assert {name: shown[name] for name in ("log.retention.ms", "max.connections", "node.id", "metrics.listener")} == {
        "log.retention.ms": ("1000", OF_BROKER, False, False),
        "max.connections": ("50", OF_CLUSTER, False, False),
        "node.id": ("1", OF_FILE, True, False),
        "metrics.listener": ("127.0.0.1:9404", OF_FILE, True, False),
    }
    # A secret has no value; nor has what may be a plug-in's.
    for name, source, read_only in (
        ("ssl.keystore.password", OF_FILE, False),
        ("acme.plugin.token", OF_FILE, True),
        ("acme.plugin.size", OF_CLUSTER, True),
    ):
        assert shown[name] == (None, source, read_only, True), name
        assert [value for _, value, _ in _synonyms(found[name])] == [None], name
    # A listener's own setting has the type of that of the node, and nobody's name.
    own = found["listener.name.plaintext.max.connections"]
    assert (own.value, own.source, own.type, own.read_only, own.sensitive) == ("9", OF_FILE, 3, True, False)
    rate = found["leader.replication.throttled.rate"]
    assert (rate.value, rate.source, rate.type, rate.read_only, rate.sensitive) == ("700", OF_BROKER, 5, False, False)


def test_an_internal_setting_is_shown_if_it_was_set() -> None:
    given = {"controller.performance.sample.period.ms": "5000"}
    found = _by_name(describe_broker(ServerSettings.parse(_FILE | given), _Image(), "1"))  # type: ignore[arg-type]
    internal = {name for name in found if "performance" in name}
    assert internal == set(given)
    image: Any = _Image(topic_t={"internal.segment.bytes": "2000000"})
    assert ["internal.segment.bytes" in _by_name(describe_topic(_server(), image, each)) for each in "tu"] == [
        True,
        False,
    ]


def test_settings_of_all_brokers_are_those_that_were_set_for_all() -> None:
    image: Any = _Image(broker_=_CLUSTER)
    found = describe_broker(_server(), image, "")
    assert [(each.name, each.value, each.source, each.sensitive) for each in found] == [
        ("acme.plugin.size", None, OF_CLUSTER, True),
        ("log.retention.ms", "2000", OF_CLUSTER, False),
        ("max.connections", "50", OF_CLUSTER, False),
    ]
    assert [_synonyms(each) for each in found] == [
        [("acme.plugin.size", None, OF_CLUSTER)],
        [("log.retention.ms", "2000", OF_CLUSTER)],
        [("max.connections", "50", OF_CLUSTER)],
    ]


def test_a_subscription_of_metrics_shows_what_was_set_and_the_defaults() -> None:
    image: Any = _Image(metrics_s={"interval.ms": "500"})
    found = _by_name(describe_client_metrics(image, "s"))
    assert set(found) == {"interval.ms", "match", "metrics"}
    interval = found["interval.ms"]
    assert (interval.value, interval.source, _synonyms(interval)) == (
        "500",
        OF_METRICS,
        [("interval.ms", "500", OF_METRICS)],
    )
    assert (found["match"].value, found["match"].source, found["match"].synonyms) == ("", DEFAULT, ())
    assert _by_name(describe_client_metrics(image, "other"))["interval.ms"].value == "300000"
