"""Settings of clients that depend on each other, and the values at the edge of what a setting takes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ottla.client.settings.consumer import ConsumerSettings
from ottla.client.settings.producer import ProducerSettings
from ottla.client.settings.reference import CLIENTS
from ottla.client.settings.share import NOT_OF_SHARE_CONSUMERS, ShareConsumerSettings
from ottla.kernel.error import OttlaError
from ottla.settings.client.client import AdminSettings
from ottla.settings.client.schema import addresses, flag, integer, one_of
from ottla.settings.schema import ConfigType
from ottla.wire.codec import Codec

SERVER = "127.0.0.1:1"


def producer(**given: Any) -> ProducerSettings:
    return ProducerSettings.read(SERVER, given)


def consumer(**given: Any) -> ConsumerSettings:
    return ConsumerSettings.read(SERVER, given)


@pytest.mark.parametrize(
    ("settings", "own"),
    [(AdminSettings, {}), (ProducerSettings, {}), (ConsumerSettings, {}), (ShareConsumerSettings, {"group_id": "g"})],
)
def test_every_client_needs_a_broker(settings: Any, own: dict[str, object]) -> None:
    with pytest.raises(OttlaError, match=r"bootstrap\.servers is missing: name at least one broker"):
        settings.read({}, own)


# ---- the producer


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"transactional_id": "x", "enable_idempotence": False}, "transactional.id needs enable.idempotence=true"),
        ({"transactional_id": ""}, "transactional.id is empty"),
        ({"enable_idempotence": True, "acks": 1}, "enable.idempotence needs acks=all"),
        ({"transactional_id": "x", "acks": "0"}, "enable.idempotence needs acks=all"),
        (
            {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
            "enable.idempotence needs max.in.flight.requests.per.connection of at most 5",
        ),
        (
            {"transactional_id": "x", "max_in_flight_requests_per_connection": 6},
            "enable.idempotence needs max.in.flight.requests.per.connection of at most 5",
        ),
        ({"acks": 2}, "invalid value for acks: 2 (expected 0, 1 or all)"),
        ({"compression_type": "uncompressed"}, "one of none, gzip, snappy, lz4, zstd"),
        ({"partitioner": "sticky"}, "default, round_robin, or a function"),
    ],
)
def test_a_producers_settings_that_do_not_go_together_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(OttlaError, match=re.escape(words)):
        producer(**given)


@pytest.mark.parametrize(
    ("given", "idempotent"),
    [
        ({}, True),
        ({"acks": "all"}, True),
        ({"acks": -1}, True),
        # What a program did not ask for gives way.
        ({"acks": 1}, False),
        ({"acks": 0}, False),
        ({"max_in_flight_requests_per_connection": 5}, True),
        ({"max_in_flight_requests_per_connection": 6}, False),
        ({"enable_idempotence": False, "max_in_flight_requests_per_connection": 6}, False),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 5}, True),
        ({"transactional_id": "x"}, True),
    ],
)
def test_idempotence_gives_way_unless_it_was_asked_for(given: dict[str, Any], idempotent: bool) -> None:
    assert producer(**given).enable_idempotence is idempotent


@pytest.mark.parametrize(
    ("codec", "level"),
    [("gzip", 3), ("lz4", 4), ("zstd", 5), ("snappy", None), ("none", None)],
)
def test_the_level_is_that_of_the_codec(codec: str, level: int | None) -> None:
    levels = {"compression_gzip_level": 3, "compression_lz4_level": 4, "compression_zstd_level": 5}
    settings = producer(compression_type=codec, **levels)
    assert (settings.compression_type, settings.compression_level) == (Codec[codec.upper()], level)


# ---- consumers


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"group_protocol": "consumer", "session_timeout_ms": 1},
            "session.timeout.ms is set on the broker with group.protocol=consumer",
        ),
        (
            {"group_protocol": "consumer", "heartbeat_interval_ms": 1},
            "heartbeat.interval.ms is set on the broker with group.protocol=consumer",
        ),
        (
            {"group_protocol": "consumer", "partition_assignment_strategy": "range"},
            "partition.assignment.strategy is set on the broker with group.protocol=consumer",
        ),
        (
            {"group_protocol": "classic", "group_remote_assignor": "uniform"},
            "group.remote.assignor needs group.protocol=consumer",
        ),
        (
            {"dead_letter_topic": "dead", "on_decode_error": "skip"},
            "dead.letter.topic has no effect with on.decode.error=skip",
        ),
        ({"on_decode_error": "dead-letter"}, "on.decode.error=dead-letter needs dead.letter.topic"),
        ({"enable_auto_commit": True}, "enable.auto.commit needs group.id"),
        ({"group_id": ""}, "group.id is empty"),
    ],
)
def test_a_consumers_settings_that_do_not_go_together_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(OttlaError, match=re.escape(words)):
        consumer(**given)


@pytest.mark.parametrize(
    ("given", "commits", "on_decode_error"),
    [
        ({}, False, "raise"),
        ({"enable_auto_commit": False}, False, "raise"),
        ({"group_id": "g"}, True, "raise"),
        ({"group_id": "g", "enable_auto_commit": False}, False, "raise"),
        ({"dead_letter_topic": "dead"}, False, "dead-letter"),
        ({"dead_letter_topic": "dead", "on_decode_error": "dead-letter"}, False, "dead-letter"),
        ({"on_decode_error": "skip"}, False, "skip"),
        ({"group_id": "g", "group_protocol": "consumer", "group_remote_assignor": "uniform"}, True, "raise"),
    ],
)
def test_what_a_consumer_leaves_open_follows_from_the_rest(
    given: dict[str, Any], commits: bool, on_decode_error: str
) -> None:
    settings = consumer(**given)
    assert (settings.enable_auto_commit, settings.on_decode_error) == (commits, on_decode_error)
    assert consumer(isolation_level="read_committed").read_committed
    assert not settings.read_committed


@pytest.mark.parametrize("attribute", sorted(NOT_OF_SHARE_CONSUMERS))
def test_what_a_share_group_decides_is_no_setting_of_its_consumers(attribute: str) -> None:
    declared = ShareConsumerSettings.declared[attribute]
    with pytest.raises(OttlaError, match=f"a share consumer has no {declared.name}"):
        ShareConsumerSettings.read(SERVER, {"group_id": "g", attribute: declared.default})


def test_a_share_consumer_needs_its_group_and_commits_nothing_by_itself() -> None:
    for given in ({}, {"group_id": ""}):
        with pytest.raises(OttlaError, match=r"a share consumer needs group\.id"):
            ShareConsumerSettings.read(SERVER, given)
    settings = ShareConsumerSettings.read(SERVER, {"group_id": "g"})
    assert (settings.enable_auto_commit, settings.max_poll_interval_ms) == (False, 0x7FFFFFFF)


# ---- all clients


def test_every_client_needs_a_broker_to_begin_with() -> None:
    with pytest.raises(OttlaError, match=r"bootstrap\.servers is missing"):
        AdminSettings.read(None, {})


@pytest.mark.parametrize(
    ("given", "longest"),
    [
        ({}, 1000),
        ({"retry_backoff_ms": 2000}, 2000),
        ({"retry_backoff_ms": 999}, 1000),
        ({"retry_backoff_ms": 5000, "retry_backoff_max_ms": 3000}, 5000),
        ({"retry_backoff_max_ms": 50}, 50),
    ],
)
def test_the_longest_pause_is_no_shorter_than_a_first_one_that_was_asked_for(
    given: dict[str, int], longest: int
) -> None:
    assert AdminSettings.read(SERVER, given).retry_backoff_max_ms == longest


@pytest.mark.parametrize("client", CLIENTS)
def test_a_number_is_taken_up_to_the_bounds_that_its_setting_names(client: str) -> None:
    numbers = [each for each in CLIENTS[client].declared.values() if each.type in (ConfigType.INT, ConfigType.LONG)]
    assert len(numbers) > 10
    for each in numbers:
        for bound, outside in (("least", -1), ("most", 1)):
            found = re.search(rf"at {bound} (-?\d+)", each.valid_values)
            if found is not None:
                edge = int(found[1])
                assert (each.read(edge), each.read(str(edge))) == (edge, edge), each.name
                with pytest.raises(ValueError, match=re.escape(each.valid_values)):
                    each.read(edge + outside)


@pytest.mark.parametrize("value", [True, 1.0, "1.5", "", None, [1]])
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^a whole number$"):
        integer().read(value)
    assert (integer().read(-5), integer().read(" 7 ")) == (-5, 7)


@pytest.mark.parametrize(
    ("value", "expected"), [(True, True), (False, False), ("TRUE", True), ("false", False), ("yes", None), (1, None)]
)
def test_a_flag_is_true_or_false(value: object, expected: bool | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="true or false"):
            flag.read(value)
    else:
        assert flag.read(value) is expected


def test_a_word_is_taken_in_any_case() -> None:
    reader = one_of("read_committed", "read_uncommitted")
    assert reader.read("READ_Committed") == "read_committed"
    for value in ("read", 5, None):
        with pytest.raises(ValueError, match="one of read_committed, read_uncommitted"):
            reader.read(value)


@pytest.mark.parametrize(
    ("value", "pairs"),
    [
        ("a:1", [("a", 1)]),
        ("a:1, b:65535", [("a", 1), ("b", 65535)]),
        (["a:1", "b:2"], [("a", 1), ("b", 2)]),
        (("[::1]:9092",), [("::1", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
        ("a:0", None),
        ("a:65536", None),
        ("a:-1", None),
        ("a:x", None),
        (":1", None),
        ("a", None),
        ("", None),
        ([], None),
        (5, None),
    ],
)
def test_brokers_are_hosts_with_ports(value: object, pairs: list[tuple[str, int]] | None) -> None:
    if pairs is None:
        with pytest.raises(ValueError, match="host:port entries, comma-separated"):
            addresses.read(value)
    else:
        assert addresses.read(value) == pairs


def test_names_are_written_with_dots_or_underscores_and_are_kept_as_they_were_given() -> None:
    settings = AdminSettings.read({"bootstrap.servers": SERVER, "client.id": "a"}, {"client_id": "b"})
    assert (settings.client_id, settings.given) == ("b", {"bootstrap_servers": SERVER, "client_id": "b"})
    assert repr(settings) == "AdminSettings(bootstrap.servers=[('127.0.0.1', 1)], client.id='b')"
    with pytest.raises(AttributeError, match="immutable"):
        settings.client_id = "c"
    with pytest.raises(TypeError, match="a setting's name is a str, not int"):
        AdminSettings.read({5: "x"}, {})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="a client takes host:port"):
        AdminSettings.read(5, {})  # type: ignore[arg-type]
