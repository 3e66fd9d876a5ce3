"""The connections of a client: which address is tried, when again, and what is said of it. Without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.client.connection import cluster as module
from ottla.client.connection.cluster import Address, Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.client_error import AuthenticationFailed, ClientClosed, NotReachable, TlsFailed
from ottla.settings.client.client import ClientSettings

ONE, TWO, THREE = ("one", 1), ("two", 2), ("three", 3)


class Network:
    """The addresses that do not answer and why, all attempts, and the time."""

    def __init__(self) -> None:
        self.down: dict[Address, Exception] = {}
        self.tried: list[Address] = []
        self.now = 1_000
        self.gate: asyncio.Event | None = None
        self.opened: list[Any] = []
        self.finished = 0
        self.timeouts_ms: list[int] = []

    async def open(self, host: str, port: int, *rest: Any) -> Any:
        self.tried.append((host, port))
        self.timeouts_ms.append(rest[-1])
        if self.gate is not None:
            await self.gate.wait()
        if (error := self.down.get((host, port))) is not None:
            raise error
        self.opened.append(
            Mock(closed=None, throttled=False, in_flight=0, used_at=0.0, finish=self._finish, address=(host, port))
        )
        return self.opened[-1]

    async def _finish(self) -> None:
        self.finished += 1

    @staticmethod
    def shuffle(addresses: list[Address]) -> None:
        addresses.reverse()


def scene(
    play: Callable[[Cluster, Network], Awaitable[None]], monkeypatch: pytest.MonkeyPatch, **settings: object
) -> None:
    network = Network()
    monkeypatch.setattr(BrokerConnection, "open", network.open)
    monkeypatch.setattr(module, "now_ms", lambda: network.now)
    monkeypatch.setattr(module, "randomness", lambda: network)

    async def run() -> None:
        given = {"bootstrap.servers": "one:1", "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 50, **settings}
        cluster = Cluster(ClientSettings.read(given, {}))
        try:
            await play(cluster, network)
        finally:
            await cluster.close()

    asyncio.run(run())


async def refused(work: Awaitable[object]) -> Exception:
    with pytest.raises(Exception) as error:
        await work
    return error.value


def test_an_address_that_failed_is_not_tried_again_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(cluster: Cluster, network: Network) -> None:
        network.down[ONE] = why = NotReachable("one is gone")
        assert await refused(cluster.address(ONE)) is why
        assert await refused(cluster.address(ONE)) is why, "what is known of it, without an attempt"
        assert network.tried == [ONE]
        network.now += 100
        assert await refused(cluster.address(ONE)) is why
        assert network.tried == [ONE, ONE]
        assert caplog.messages == ["one is gone; trying again"], "once"
        network.now += 100
        del network.down[ONE]
        found = await cluster.address(ONE)
        assert await cluster.address(ONE) is found and len(network.tried) == 3
        assert caplog.messages[1:] == ["one:1 can be reached again"]
        other = await cluster.address(ONE, "fetch")
        assert other is not found and await cluster.address(ONE, "fetch") is other
        found.closed = "lost"
        assert await cluster.address(ONE) is not found
        assert caplog.messages[2:] == []

    scene(play, monkeypatch)


@pytest.mark.parametrize("error", [AuthenticationFailed("wrong password"), TlsFailed("not trusted")])
def test_a_refusal_is_the_programs_and_not_the_logs(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(cluster: Cluster, network: Network) -> None:
        network.down[ONE] = error
        assert await refused(cluster.address(ONE)) is error
        network.now += 100
        del network.down[ONE]
        await cluster.address(ONE)
        assert caplog.messages == []

    scene(play, monkeypatch)


def test_the_pause_grows_and_begins_again_after_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pauses(cluster: Cluster, network: Network, times: int) -> list[int]:
        found = []
        for _ in range(times):
            await refused(cluster.address(ONE))
            began, tried = network.now, len(network.tried)
            while len(network.tried) == tried:
                network.now += 1
                await refused(cluster.address(ONE))
            found.append(network.now - began)
        return found

    async def play(cluster: Cluster, network: Network) -> None:
        network.down[ONE] = NotReachable("gone")
        first = await pauses(cluster, network, 4)
        assert 8 <= first[0] <= 12 and first[1] > first[0] and first[-1] > 50
        del network.down[ONE]
        network.now += 1_000
        (await cluster.address(ONE)).closed = "lost"
        network.down[ONE] = NotReachable("gone")
        assert 8 <= (await pauses(cluster, network, 1))[0] <= 12

    settings = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 1000}
    scene(play, monkeypatch, **settings)


def test_an_attempt_after_failures_has_more_time_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that takes 15 seconds for a TLS handshake would not be reached otherwise (KIP-601)."""

    async def play(cluster: Cluster, network: Network) -> None:
        network.down[ONE] = NotReachable("gone")
        for _ in range(4):
            await refused(cluster.address(ONE))
            network.now += 100_000
        del network.down[ONE]
        await cluster.address(ONE)
        (await cluster.address(ONE)).closed = "lost"
        await cluster.address(ONE)
        expected = (100, 200, 400, 500, 500, 100)
        assert all(
            0.79 * each <= found <= 1.2 * each for each, found in zip(expected, network.timeouts_ms, strict=True)
        )

    names = ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms")
    scene(play, monkeypatch, **dict(zip(names, (100, 500), strict=True)))


def test_callers_of_one_address_share_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(cluster: Cluster, network: Network) -> None:
        network.gate = asyncio.Event()
        both = [asyncio.ensure_future(cluster.address(ONE)) for _ in range(2)]
        await asyncio.sleep(0)
        network.gate.set()
        first, second = await asyncio.gather(*both)
        assert first is second and network.tried == [ONE]

    scene(play, monkeypatch)


def test_a_closed_client_opens_nothing_and_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(cluster: Cluster, network: Network) -> None:
        network.gate = asyncio.Event()
        opening = asyncio.ensure_future(cluster.address(ONE))
        await asyncio.sleep(0)
        await cluster.close()
        network.gate.set()
        assert isinstance(await refused(opening), ClientClosed)
        assert isinstance(await refused(cluster.address(TWO)), ClientClosed)
        assert network.tried == [ONE] and not cluster._connections
        network.opened[0].close.assert_called_once_with()

    scene(play, monkeypatch)


def test_a_close_waits_until_all_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(cluster: Cluster, network: Network) -> None:
        for purpose in ("", "fetch"):
            await cluster.address(ONE, purpose)
        await cluster.close()
        await cluster.close()
        assert network.finished == 2

    scene(play, monkeypatch)


def test_a_node_that_is_not_known_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(cluster: Cluster, network: Network) -> None:
        updates: list[None] = []

        async def update() -> None:
            updates.append(None)
            _known(cluster, TWO)

        monkeypatch.setattr(cluster, "update", update)
        found: Any = await cluster.node(1, "fetch")
        assert found.address == TWO and await cluster.address(TWO, "fetch") is found
        assert await cluster.node(1, "fetch") is found and len(updates) == 1
        error = await refused(cluster.node(7))
        assert isinstance(error, NotReachable) and str(error) == "node 7 is not a live broker of this cluster"
        assert len(updates) == 2

    scene(play, monkeypatch)


def _known(cluster: Cluster, *addresses: Address) -> None:
    cluster.metadata.nodes = {
        number: ClusterNode(number, *address) for number, address in enumerate(addresses, start=1)
    }


def test_any_broker_is_the_least_busy_one_that_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(cluster: Cluster, network: Network) -> None:
        first, second, third = [await cluster.address(each) for each in (ONE, TWO, THREE)]
        fetches = await cluster.address(TWO, "fetch")
        for busy, connection in ((3, first), (1, second), (2, third)):
            connection.in_flight = busy  # type: ignore[misc]
        assert await cluster.any() is second
        _known(cluster, ONE, THREE)
        assert await cluster.any() is third, "the second is no broker of the cluster any more"
        third.closed = "lost"
        assert await cluster.any() is first and fetches.in_flight == 0, "a fetch may hold the answer up"
        assert len(network.tried) == 4

    scene(play, monkeypatch)


def test_a_broker_that_throttles_the_client_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(cluster: Cluster, network: Network) -> None:
        first, second = [await cluster.address(each) for each in (ONE, TWO)]
        first.throttled, second.in_flight = True, 3  # type: ignore[misc]
        assert await cluster.any() is second
        second.throttled = True  # type: ignore[misc]
        assert (await cluster.any()).address in (ONE, TWO)  # type: ignore[attr-defined]
        _known(cluster, THREE, ONE, TWO)
        third = await cluster.any()
        assert third.address == THREE, "another one is connected to first"  # type: ignore[attr-defined]
        third.throttled = True  # type: ignore[misc]
        network.down = {TWO: NotReachable("gone")}
        second.closed = "lost"
        assert (await cluster.any()).address in (ONE, THREE)  # type: ignore[attr-defined]

    scene(play, monkeypatch)


@pytest.mark.parametrize(("strategy", "found"), [("rebootstrap", True), ("none", False)])
def test_a_client_falls_back_to_its_bootstrap_servers_if_it_may(
    strategy: str, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(cluster: Cluster, network: Network) -> None:
        _known(cluster, TWO, THREE)
        network.down = {TWO: NotReachable("two is gone"), THREE: NotReachable("three is gone")}
        if found:
            assert (await cluster.any()).address == ONE  # type: ignore[attr-defined]
        else:
            error = await refused(cluster.any())
            assert isinstance(error, NotReachable)
            assert str(error) == "no broker can be reached: three is gone"
        assert network.tried == [THREE, TWO, *[ONE] * found], "the known ones first, in no order of theirs"

    scene(play, monkeypatch, **{"metadata.recovery.strategy": strategy})


def test_the_first_attempt_goes_to_the_bootstrap_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(cluster: Cluster, network: Network) -> None:
        network.down = {TWO: NotReachable("two is gone"), ONE: NotReachable("one is gone")}
        assert str(await refused(cluster.any())) == "no broker can be reached: two is gone"
        assert network.tried == [TWO, ONE], "not all clients begin at the first"

    servers = {"bootstrap.servers": "one:1,two:2", "metadata.recovery.strategy": "none"}
    scene(play, monkeypatch, **servers)


def test_a_refusal_ends_the_search_for_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next broker would refuse the same password, and lock its user out the sooner."""

    async def play(cluster: Cluster, network: Network) -> None:
        _known(cluster, TWO, THREE)
        network.down = dict.fromkeys((TWO, THREE), AuthenticationFailed("wrong password"))
        assert isinstance(await refused(cluster.any()), AuthenticationFailed)
        assert len(network.tried) == 1

    scene(play, monkeypatch)


@pytest.mark.parametrize(("idle_ms", "closed"), [(1_000, True), (2_000, False), (0, True), (-1, False)])
def test_a_connection_without_work_is_closed_when_it_was_idle(
    idle_ms: int, closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(cluster: Cluster, network: Network) -> None:
        now = asyncio.get_running_loop().time()
        connections: list[Any] = [await cluster.address(each) for each in (ONE, TWO, THREE)]
        idle, busy, lost = connections
        idle.used_at = busy.used_at = lost.used_at = now - 1.5
        busy.in_flight, lost.closed = 1, "lost"
        cluster.close_idle()
        assert [each.close.called for each in connections] == [closed, False, True]
        assert len(cluster._connections) == (1 if closed else 2)
        if closed:
            idle.close.assert_called_once_with("it was idle")

    scene(play, monkeypatch, **{"connections.max.idle.ms": idle_ms})
