"""Client quotas as they are set and described, and metrics that clients are asked for."""

from typing import Any

import pytest

from tests.interop.oracle.side import Oracle, Side


def entity(**names: str | None) -> list[dict[str, Any]]:
    return [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in names.items()]


def ops(**values: float | None) -> list[dict[str, Any]]:
    return [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]


class Quotas:
    """What the scripts below share: both sides in an order of their own, compared in one."""

    def __init__(self, side: Side, version: int) -> None:
        self.side, self.version = side, version

    def alter(self, *entries: tuple[list[dict[str, Any]], list[dict[str, Any]]], validate_only: bool = False) -> None:
        request = [{"entity": who, "ops": what} for who, what in entries]
        reply = self.side.ask(
            "AlterClientQuotas", self.version, note=False, entries=request, validate_only=validate_only
        )
        for entry in reply.entries:
            entry.entity.sort(key=lambda one: one.entity_type)
        reply.entries.sort(key=lambda one: [(part.entity_type, part.entity_name or "") for part in one.entity])
        self.side.note("AlterClientQuotas", reply, self.version)

    def describe(self, *components: tuple[str, int, str | None], strict: bool = False, mine: str = "") -> None:
        wanted = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components]
        reply = self.side.ask("DescribeClientQuotas", self.version, note=False, components=wanted, strict=strict)
        if reply.entries is not None:
            kept = [
                entry
                for entry in reply.entries
                if any(part.entity_name is None or mine in part.entity_name for part in entry.entity)
            ]
            for entry in kept:
                entry.entity.sort(key=lambda one: one.entity_type)
                entry.values.sort(key=lambda one: one.key)
            reply.entries = sorted(
                kept, key=lambda one: [(part.entity_type, part.entity_name or "") for part in one.entity]
            )
        self.side.note("DescribeClientQuotas", reply, self.version)


EXACT, DEFAULT, SPECIFIED = 0, 1, 2


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_removed(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        quotas = Quotas(side, version)
        user, client = name + "-u", name + "-c"
        quotas.alter((entity(user=user), ops(producer_byte_rate=1000.0, request_percentage=12.5)))
        quotas.alter((entity(client_id=client, user=user), ops(consumer_byte_rate=2000.0)))
        quotas.alter(
            (entity(client_id=None), ops(consumer_byte_rate=1e12)), (entity(user=None), ops(producer_byte_rate=1e12))
        )
        quotas.alter((entity(client_id=client), ops(controller_mutation_rate=0.5)), validate_only=True)
        side.settle()
        quotas.describe(mine=name)
        quotas.describe(("user", EXACT, user))
        quotas.describe(("user", EXACT, user), strict=True)
        quotas.describe(("user", SPECIFIED, None), ("client-id", SPECIFIED, None), mine=name)
        quotas.describe(("user", DEFAULT, None), strict=True)
        quotas.describe(("client-id", DEFAULT, None), strict=True)
        quotas.describe(("ip", SPECIFIED, None))
        quotas.alter((entity(user=user), ops(producer_byte_rate=None, consumer_byte_rate=None)))
        quotas.alter(
            (entity(user=user), ops(request_percentage=None)), (entity(user=None), ops(producer_byte_rate=None))
        )
        quotas.alter((entity(client_id=None), ops(consumer_byte_rate=None)))
        side.settle()
        quotas.describe(mine=name)

    oracle.compare(script)


def test_quotas_that_cannot_be_are_refused(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        quotas = Quotas(side, 1)
        quotas.alter((entity(), ops(producer_byte_rate=1.0)))
        quotas.alter((entity(user=""), ops(producer_byte_rate=1.0)))
        quotas.alter((entity(group=name), ops(producer_byte_rate=1.0)))
        quotas.alter((entity(user=name, ip="127.0.0.1"), ops(producer_byte_rate=1.0)))
        quotas.alter((entity(ip="127.0.0.1"), ops(producer_byte_rate=1.0)))
        quotas.alter((entity(ip="300.1.2.3"), ops(connection_creation_rate=1.0)))
        quotas.alter((entity(ip="127.0.0.9"), ops(connection_creation_rate=1.5)))
        quotas.alter((entity(ip="127.0.0.9"), ops(connection_creation_rate=3e9)))
        quotas.alter((entity(user=name), ops(connection_creation_rate=1.0)))
        for value in (0.0, -1.0, 0.5, 1e19):
            quotas.alter((entity(user=name), ops(producer_byte_rate=value)))
        quotas.alter((entity(user=name), ops(request_percentage=0.0)))
        quotas.alter((entity(user=name), ops(nothing_like_it=None)))
        quotas.alter((entity(user=name), ops(nothing_like_it=1.0)))
        quotas.alter((entity(user=name), ops(producer_byte_rate=1.0) * 2))
        quotas.alter((entity(user=name), ops(producer_byte_rate=1.0)), (entity(user=name), ops(consumer_byte_rate=1.0)))
        quotas.alter((entity(user=name) + entity(user=name + "2"), ops(producer_byte_rate=1.0)))
        side.settle()
        quotas.describe(("user", EXACT, name))
        for who in (name, name + "2"):
            quotas.alter((entity(user=who), ops(producer_byte_rate=None, consumer_byte_rate=None)))

    oracle.compare(script)


@pytest.mark.parametrize(
    "components",
    [
        [("", EXACT, "a")],
        [("user", EXACT, "a"), ("user", SPECIFIED, None)],
        [("group", EXACT, "a")],
        [("user", EXACT, None)],
        [("user", DEFAULT, "a")],
        [("user", SPECIFIED, "a")],
        [("user", 3, None)],
        [("user", EXACT, "a"), ("ip", EXACT, "127.0.0.1")],
    ],
)
def test_filters_that_cannot_be_are_refused(oracle: Oracle, components: list[tuple[str, int, str | None]]) -> None:
    def script(side: Side) -> None:
        Quotas(side, 1).describe(*components)

    oracle.compare(script)


def test_clients_are_asked_for_metrics_that_match_them(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        def alter(resource: str, **values: str | None) -> None:
            configs = [
                {"name": key.replace("_", "."), "value": value, "config_operation": 0 if value else 1}
                for key, value in values.items()
            ]
            side.ask(
                "IncrementalAlterConfigs",
                1,
                resources=[{"resource_type": 16, "resource_name": resource, "configs": configs}],
            )

        def asked(instance: bytes, *, note: bool = True) -> Any:
            reply = side.ask("GetTelemetrySubscriptions", 0, note=False, client_instance_id=instance)
            if note:
                reply.requested_metrics.sort()
                mine, reply.subscription_id = reply.subscription_id, 0
                side.note("GetTelemetrySubscriptions", reply)
                reply.subscription_id = mine
            return reply

        def push(instance: bytes, subscription: int, **values: Any) -> None:
            side.ask("PushTelemetry", 0, client_instance_id=instance, subscription_id=subscription, **values)

        one = bytes(range(16))
        first = asked(one)
        asked(one)  # within the interval
        push(one, first.subscription_id + 1, metrics=b"")
        asked(one)  # after an unknown subscription it may ask at once
        push(bytes(16), 0, metrics=b"")
        push(bytes(15) + b"\1", 0, metrics=b"")
        alter(name, interval_ms="100", metrics="org.apache.kafka.a,org.apache.kafka.b", match="client_id=oracle")
        alter(name + "-other", interval_ms="200", metrics="*", match="client_id=somebody")
        side.settle()
        second = asked(one)
        push(one, second.subscription_id, metrics=b"\1\2", compression_type=9)
        push(one, second.subscription_id, metrics=b"x" * ((1 << 20) + 1), terminating=True)
        push(one, second.subscription_id, metrics=b"\1\2")  # after it said that it ends
        alter(name, interval_ms=None, metrics=None, match=None)
        alter(name + "-other", interval_ms=None, metrics=None, match=None)

    oracle.compare(script)
